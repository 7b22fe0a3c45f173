"""A sweep as one HTML page: ``write`` writes it from its content (runs, provenance, pictures ..) and ``page``.

May import every room of ``analysis``, ``grid.engine`` and ``files``.
"""
