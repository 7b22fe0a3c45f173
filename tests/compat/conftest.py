"""The group of ranks that the tests of ``nuq`` have."""

from tests.nuq.conftest import ranks  # noqa: F401 - a fixture
