"""The test kit: builders of events and the contract suite that every log passes."""
