"""Training over slow links: ``python -m benchmarks.links CASE``.

A case starts ranks (``ranks``) in network namespaces whose links have a chosen speed (``network``, which needs root),
and asks them to prepare, measure or train what its ``rank.Spec`` says: a model, and a way to exchange gradients.

It may import all of ``nuq``, ``settings``, ``train`` and ``analysis``.
"""
