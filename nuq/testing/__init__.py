"""The contract of a method as tests that anybody can run, also where this repository is not::

    pytest -p nuq --pyargs nuq.testing --method mine --import my_package

It holds that a fresh instance decodes the bytes, that the key alone decides the rounding, the claims of the entry
(``unbiased``, ``contractive``, ``deterministic``), and that damaged and made-up messages are a MessageError.  This room
may import pytest, ``nuq.settings``, ``nuq.registry`` and ``nuq.compressors``.
"""

import pytest

pytest.register_assert_rewrite("nuq.testing.test_contract", "nuq.testing.test_hostile_messages")
