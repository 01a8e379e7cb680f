"""Numbers as Java prints them, so that tools see the text that they would get from Kafka."""

from __future__ import annotations


def double_text(value: float) -> str:
    """A double as Java prints it: plain between 1e-3 and 1e7, otherwise as 1.5E10."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(float(value))
    if value != value or value in (float("inf"), float("-inf")):
        return "NaN" if value != value else ("Infinity" if value > 0 else "-Infinity")
    digits, _, exponent = f"{value!r}".partition("e")
    if not exponent:
        digits, _, exponent = f"{value:.16e}".partition("e")
        digits = digits.rstrip("0")
    if "." not in digits:
        digits += ".0"
    return f"{digits}{'0' if digits.endswith('.') else ''}E{int(exponent)}"
