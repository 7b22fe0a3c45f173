"""The panels and figures themselves, and how they look."""
