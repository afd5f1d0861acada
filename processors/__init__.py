"""How events become state.

The fold and admission are pure: they decide what is recorded and what it means. The logs
keep it: in memory, in JSON lines, in SQLite, on Kafka, behind one port.
"""
