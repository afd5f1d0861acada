"""What an event is.

The models that people edit, the envelope and blocks they share, the state that a session
folds into, and the frozen Avro shapes under `avro/` that fix their bytes for ever.
"""
