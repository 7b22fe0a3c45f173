"""A sweep as one HTML page: what it holds (runs, provenance, curves, pictures) and how it looks (page, page.css,
page.js).
"""
