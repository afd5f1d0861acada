"""The one place that builds Kafka clients, with durable defaults.

What the settings' `kafka.extra` says goes last, so SASL, TLS or a client.rack need
nothing of us. Only what foldline's promises rest on cannot be set there.
"""
