"""Records of a run with any JSON in them, and the moment at which they are judged."""

from __future__ import annotations

from hypothesis import strategies as st

NOW = 1_000_000.0
SCALAR = st.none() | st.booleans() | st.floats() | st.integers() | st.just(10**400) | st.text(max_size=5)
JSON = st.recursive(SCALAR, lambda inner: st.lists(inner, max_size=3), max_leaves=4)
KEYS = st.sampled_from(["state", "heartbeat", "host", "pid", "step", "steps", "seconds", "attempt", "failure"])
WORDS = st.sampled_from(["running", "done", "failed", "preempted", "paused"])
