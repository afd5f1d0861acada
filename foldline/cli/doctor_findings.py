"""What `foldline doctor` found: one line each, with what to do about it."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from foldline.errors import FoldlineError

OK = "OK"
WARNING = "WARNING"
BAD = "BAD"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at; `advice` is empty where nothing is to be done."""

    about: str
    status: str
    detail: str
    advice: str = ""


Check = Callable[[], Iterable[Finding]]


def found_by(about: str, check: Check) -> Iterator[Finding]:
    """What a check finds; one that fails is a finding itself, so that the others go on."""
    try:
        yield from check()
    except FoldlineError as error:
        yield Finding(about, BAD, str(error), _advice_of(error))
    except OSError as error:
        yield Finding(about, BAD, f"{type(error).__name__}: {error}")


def _advice_of(error: FoldlineError) -> str:
    """What the error's own documentation tells the operator to do."""
    _, marker, advice = (type(error).__doc__ or "").partition("Operator action:")
    return " ".join(advice.split()) if marker else ""
