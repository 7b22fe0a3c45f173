"""A sweep as one HTML page.

Some modules hold its content (runs, provenance, curves, pictures), others its looks (page, page.css, page.js).

May import every room of ``analysis``, ``grid.engine`` and ``files``.
"""
