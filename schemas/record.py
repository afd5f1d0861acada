"""The base of every stored record: frozen pydantic models, and a fast way in.

People edit pydantic models; they validate at the edges, where a harness hands in an
event. Bytes that were admitted once are not validated again: `trusted` makes a model
straight from the decoder's dictionary, three times faster than validation.
"""

from dataclasses import dataclass
from typing import Any, Self

from pydantic import BaseModel, ConfigDict


@dataclass(frozen=True, slots=True)
class Logical:
    """An annotation that gives a field an Avro logical type."""

    name: str


UUID = Logical("uuid")
TIMESTAMP_MICROS = Logical("timestamp-micros")


class Record(BaseModel):
    """A frozen record that knows nothing but its fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_bytes="base64")

    @classmethod
    def trusted(cls, fields: dict[str, Any]) -> Self:
        """Make a record from decoded fields without validating them again.

        Args:
            fields: every field of the record by name; the record keeps this object.
        """
        record = cls.__new__(cls)
        setter = object.__setattr__
        setter(record, "__dict__", fields)
        setter(record, "__pydantic_fields_set__", fields.keys())
        setter(record, "__pydantic_extra__", None)
        setter(record, "__pydantic_private__", None)
        return record
