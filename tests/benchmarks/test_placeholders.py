"""A template's text is what its values give, number by number, and what it asks for in vain is named."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.results.placeholders import Wrong, filled, literal

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
    "small alq": {"2": 12.34},
    "methods": {"alq": {"error": 0.48, "bits": 3.0}, "trn": {"error": 2.6, "bits": 1.604}},
}


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{help:2 s}", ".055 s (.052-.057)"),
        ("{help.low:1 s}", ".05 s"),
        ("{help*1000:2 ms}", "55 ms (52-57)"),
        ("{over:2 %}", "1.1 % (-.14 to 2.6)"),
        ("{ratio:2x}", "8.7x (7.3-9.1)"),
        ("{ratio.0:.2}", "8.71"),
        ("{share*100:.1 %}", "3.0 %"),
        ("{expand:2}", "3,400"),
        ("{expand:,}", "3,416"),
        ("{runs}", "20,000,000"),
        ("{runs*1e-6:2} million", "20 million"),
        ("{name}", "ResNet-8"),
        ("{names}; {no_names}", "a, b; none"),
        ('{"small alq".2:3}', "12.3"),
        ("{{{name}}}", "{ResNet-8}"),
        ("{own}: {share:1}", "own words: .03"),
        ("@rows alq = ALQ, 3 bits; trn\n| {label} | {methods.$.error:2} | {methods.$.bits:3} |",
         "| ALQ, 3 bits | .48 | 3.00 |\n| trn | 2.6 | 1.60 |"),
        ("@let alq = methods.alq\n@let of = alq\n{alq.error:2} {of.bits:1} {ratio.0:2}", ".48 3 8.7"),
    ],
)  # fmt: skip
def test_a_template_is_filled(template: str, text: str) -> None:
    assert filled(template, VALUES, {"own": "own words"}) == text


@pytest.mark.parametrize(
    ("number", "digits", "text"),
    [(0.996, 2, "1.0"), (9.96, 2, "10"), (-0.5, 1, "-.5"), (0, 3, "0"), (3.2e-7, 1, "3e-7"), (0.00012, 2, ".00012")],
)
def test_significant_digits(number: float, digits: int, text: str) -> None:
    assert filled(f"{{x:{digits}}}", {"x": number}, {}) == text


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{halp:2 s}", "no 'halp' of 'halp' (there are help, over"),
        ("{help.mean:2}", "no 'mean' of 'help.mean' (there are median, low, high)"),
        ("{ratio.3:2}", "a list of 3"),
        ("{share.low:2}", "the value there is 0.0296"),
        ("{none:2}", "None is no finite number"),
        ("{name:2}", "'ResNet-8' is no finite number"),
        ("{share}", "a FORM is missing"),
        ("{share:two}", "the FORM 'two' must begin"),
        ("{share + 1:2}", "must be {PATH}"),
        ("{.error:2}", "must be {PATH}"),
        ("{methods.$.error:2}", "no '$'"),
        ("@rows alq", "and a line to repeat"),
        ("@rows eden\n{methods.$.error:2}", "no 'eden'"),
        ("@let x = halp", "no 'halp'"),
        ("@with methods", "must be '@let WORD = PATH'"),
    ],
)
def test_what_is_wrong_is_named(template: str, words: str) -> None:
    with pytest.raises(Wrong) as error:
        filled(template, VALUES, {})
    assert words in str(error.value)


def test_the_words_of_a_template_are_what_placeholders_leave() -> None:
    assert literal("| a | {help:2 s} |\n@rows alq\n| {label} | 5 |") == "| a |  |\n|  | 5 |"
