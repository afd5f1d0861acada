"""Frozen schemas, one `<Type>/v<N>.avsc` each: data, written once and never edited."""
