"""How recorded events are read.

The context that a model is shown, the plan that recovers an interrupted session, and the
other folds made for readers. Nothing here decides what is recorded.
"""
