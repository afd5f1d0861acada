"""The words that a caller of the session API chooses between, as types.

Events hold them as text: whoever reads a newer log meets newer words. Admission refuses
others in an owned session, and a test compares these with its rules.
"""

from typing import Literal

SteeringMode = Literal["INTERRUPT", "NEXT_TURN", "ON_IDLE"]
"""When steering reaches the agent."""

GrantScope = Literal["CALL", "TURN", "SESSION"]
"""How far a grant goes."""

CancelTarget = Literal["SESSION", "TURN", "CALL"]
"""What is to stop."""

TurnOutcome = Literal["DONE", "ABORTED", "FAILED", "LIMIT"]
"""How a turn ended."""

BackgroundOutcome = Literal["COMPLETED", "FAILED", "CANCELLED", "UNKNOWN"]
"""How something ended that went on in the background."""

ResolvedOutcome = Literal["COMPLETED", "FAILED", "NOT_EXECUTED"]
"""How a call ended that nobody saw end."""

Severity = Literal["INFO", "WARNING", "CRITICAL"]
"""How bad a violation is."""
