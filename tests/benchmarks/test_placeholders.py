"""A template's text is what its values give, number by number, and what it asks for in vain is named."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest

from benchmarks.results.placeholders import filled, literal

VALUES: dict[str, Any] = {
    "help": {"median": 0.0551, "low": 0.0519, "high": 0.0571},
    "over": {"mean": 1.1, "low": -0.14, "high": 2.6},
    "ratio": [8.71, 7.3, 9.1],
    "share": 0.0296,
    "expand": 3415.5,
    "runs": 20_000_000,
    "name": "ResNet-8",
    "names": ["a", "b"],
    "no_names": [],
    "none": None,
    "nothing": {},
    "infinite": math.inf,
    "yes": True,
    "small alq": {"2": 12.34},
    "methods": {"alq": {"error": 0.48, "bits": 3.0}, "trn": {"error": 2.6, "bits": 1.604}, "items": 7},
}


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ('{{ help|digits(2, " s") }}', ".055 s (.052-.057)"),
        ('{{ help.low|digits(1, " s") }}', ".05 s"),
        ('{{ help|digits(2, " ms", times=1000) }}', "55 ms (52-57)"),
        ('{{ over|digits(2, " %") }}', "1.1 % (-.14 to 2.6)"),
        ('{{ ratio|digits(2, "x") }}', "8.7x (7.3-9.1)"),
        ("{{ [share, help.low, help.high]|digits(1) }}", ".03 (.05-.06)"),
        ("{{ ratio[0]|decimals(2) }}", "8.71"),
        ('{{ share|decimals(1, " %", times=100) }}', "3.0 %"),
        ("{{ expand|digits(2) }}", "3,400"),
        ("{{ expand|decimals(0) }}", "3,416"),
        ("{{ runs }}", "20,000,000"),
        ("{{ runs|digits(2, times=1e-6) }} million", "20 million"),
        ("{{ name }}", "ResNet-8"),
        ("{{ names }}; {{ no_names }}", "a, b; none"),
        ('{{ file["small alq"]["2"]|digits(3) }}', "12.3"),
        ("{{ methods.items|decimals(0) }}", "7"),
        ("{{ 'a & <b>' }} {{ '{' ~ name ~ '}' }}", "a & <b> {ResNet-8}"),
        ("{{ own() }}: {{ share|digits(1) }}", "own words: .03"),
        ('{% for name, label in [("alq", "ALQ, 3 bits"), ("trn", "TRN")] %}\n'
         "| {{ label }} | {{ methods[name].error|digits(2) }} | {{ methods[name].bits|digits(3) }} |\n{% endfor %}\n",
         "| ALQ, 3 bits | .48 | 3.00 |\n| TRN | 2.6 | 1.60 |"),
        ("{% set alq = methods.alq %}\n{% set of = alq %}\n{{ alq.error|digits(2) }} {{ of.bits|digits(1) }}", ".48 3"),
        ('{% from "sweep.jinja" import accuracy %}\n'
         '{{ accuracy({"final_accuracy_percent": 3, "final_accuracy_percent_pm": 0.126}) }}\n', "3.00 +- .13"),
    ],
)  # fmt: skip
def test_a_template_is_filled(template: str, text: str) -> None:
    assert filled(template, VALUES, {"own": lambda: "own words", "file": VALUES}) == text


@pytest.mark.parametrize(
    ("number", "digits", "text"),
    [(0.996, 2, "1.0"), (9.96, 2, "10"), (-0.5, 1, "-.5"), (0, 3, "0"), (3.2e-7, 1, "3e-7"), (0.00012, 2, ".00012")],
)
def test_significant_digits(number: float, digits: int, text: str) -> None:
    assert filled(f"{{{{ x|digits({digits}) }}}}", {"x": number}, {}) == text


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("a\n{{ halp|digits(2) }}", "line 2: UndefinedError: 'halp' is undefined"),
        ("{{ help.mean|digits(2) }}", "has no attribute 'mean'"),
        ("{{ share if no_names }}", "digits or decimals is missing"),
        ("{{ ratio[3]|digits(2) }}", "has no element 3"),
        ("{{ none|digits(2) }}", "None is no finite number"),
        ("{{ [share, share, infinite]|decimals(2) }}", "inf is no finite number"),
        ("{{ yes|digits(1) }}", "True is no finite number"),
        ("{{ share }}", "digits or decimals is missing, which says how 0.0296 is written"),
        ("{{ help }}", "digits or decimals is missing"),
        ("{{ share|digits(0) }}", "line 1: ValueError"),
        ("\n{{ share|number(2) }}", "line 2: No filter named 'number'"),
        ("{{ share|digits(2) }", "line 1: unexpected '}'"),
        ("{% set x = halp %}{{ x }}", "'halp' is undefined"),
        ('\n{% include "halp.md" %}', "line 2: TemplateNotFound: 'halp.md'"),
        (
            '{% from "sweep.jinja" import accuracy %}\n{{ accuracy(help) }}',
            "line 2, sweep.jinja line 3: UndefinedError",
        ),
    ],
)
def test_what_is_wrong_is_named(template: str, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        filled(template, VALUES, {})


def test_the_words_of_a_template_are_what_jinja_leaves() -> None:
    template = '| a | {{ help|digits(2, " s") }} |\n{% for x in ["3 s"] %}{# 2 s #}\n| {{ x }} | 5 |\n{% endfor %}'
    assert literal(template).split("\n") == ["| a |  |", "|  | 5 |", ""]
