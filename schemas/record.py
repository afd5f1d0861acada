"""The base of every stored record: frozen pydantic models, and a fast way in.

People edit pydantic models; they validate at the edges, where a harness hands in an
event. Bytes that were admitted once are not validated again: `trusted` makes a model
straight from the decoder's dictionary, three times faster than validation.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self, cast

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
        record = _new(cls)
        _set_fields(record, fields)
        _set_names(record, fields.keys())
        _set_extra(record, None)
        _set_private(record, None)
        return record

    def model_copy(
        self,
        *,
        update: Mapping[str, Any] | None = None,
        deep: bool = False,  # noqa: ARG002 - nothing in a frozen record can change
    ) -> Self:
        """A record with some fields changed; pydantic's own cannot copy a trusted one."""
        return type(self).trusted({**self.__dict__, **(update or {})})


# The four slots of a pydantic model, set through their descriptors: this runs three
# times for every event that is folded, and halves what setattr would cost.
_new = cast("Any", object.__new__)
_set_fields = BaseModel.__dict__["__dict__"].__set__
_set_names = BaseModel.__dict__["__pydantic_fields_set__"].__set__
_set_extra = BaseModel.__dict__["__pydantic_extra__"].__set__
_set_private = BaseModel.__dict__["__pydantic_private__"].__set__
