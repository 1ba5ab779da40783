"""Why a text is not JSON, in the words and with the places of Kafka's parser. Pure.

`complaint` walks a text to its first fault as that parser does: what it expects where, behind which character it stops,
how it counts lines. Source: Jackson `ReaderBasedJsonParser`: 2.16, which Kafka 3.9's tools use, and 2.19, those of 4.1.
"""

from __future__ import annotations

from array import array
from typing import Final, NoReturn
from unicodedata import category

#: What Jackson names in the place of the text.
_SOURCE: Final = "Source: REDACTED (`StreamReadFeature.INCLUDE_SOURCE_IN_LOCATION` disabled)"
_EXPECTED: Final = "(JSON String, Number, Array, Object or token 'null', 'true' or 'false')"
_ESCAPES: Final = frozenset('btnfr"/\\')
_LITERALS: Final = {"t": "true", "f": "false", "n": "null", "N": "NaN", "I": "Infinity"}
_NAMES: Final = {"{": "Object", "[": "Array"}
_CLOSERS: Final = {"{": "}", "[": "]"}
_TOKEN_MAX: Final = 256
_DEPTH_MAX: Final = 1000
#: Digits of a number, at the most.
NUMBER_MAX: Final = 1000
_END: Final = ""


class _Fault(Exception):
    """The first fault, as text with its place."""


def complaint(text: str, *, newer: bool = False) -> str | None:
    """What is wrong with the first value of a text, and on a line of its own where; None for JSON or a blank text.

    `newer` is the parser of Kafka 4.1, which points at a character that is wrong, not behind it.
    """
    walk = _Walk(text, newer)
    try:
        walk.value()
    except _Fault as fault:
        return str(fault)
    return None


class _Walk:
    """A position in a text, counted in UTF-16 units as Java does, and what is open there."""

    def __init__(self, text: str, newer: bool) -> None:
        self._newer = newer
        self._units = array("H", text.encode("utf-16-le", "surrogatepass"))
        self._at = 0
        #: The bracket of each open array and object, and where it stands.
        self._open: list[tuple[str, int]] = []

    def value(self) -> None:
        """Reads the first value with all that is in it. Raises _Fault."""
        fresh = True  # nothing stands before the next token in what is open
        while True:
            char = self._after_blanks()
            if char == _END:
                if not self._open:
                    return
                bracket, start = self._open[-1]
                self._end(f": expected close marker for {_NAMES[bracket]} (start marker at {self._place(start)})")
            if char in ("]", "}"):
                self._close(char)
                fresh = False
            else:
                if self._open and not fresh:
                    char = self._comma(char)
                if self._open and self._open[-1][0] == "{":
                    char = self._name(char)
                fresh = self._begin(char)
            if not self._open:
                return

    # -- characters

    def _next(self) -> str:
        """The next character, which is behind this place then; `_END` behind the last."""
        if self._at >= len(self._units):
            return _END
        self._at += 1
        return chr(self._units[self._at - 1])

    def _peek(self) -> str:
        return chr(self._units[self._at]) if self._at < len(self._units) else _END

    def _after_blanks(self) -> str:
        while (char := self._next()) in (" ", "\t", "\r", "\n") and char != _END:
            pass
        if char == "/":
            self._unexpected(
                char,
                "maybe a (non-standard) comment? (not recognized as one since Feature 'ALLOW_COMMENTS' not enabled for "
                "parser)",
            )
        if char != _END and char < " ":
            self._fail(
                f"Illegal character ({_described(char)}): only regular white space (\\r, \\n, \\t) is allowed between "
                "tokens"
            )
        return char

    # -- structure

    def _close(self, char: str) -> None:
        if self._open and _CLOSERS[self._open[-1][0]] == char:
            self._open.pop()
            return
        if self._open:
            bracket, start = self._open[-1]
            where = f"{_NAMES[bracket]} starting at {self._place(start)}"
        else:
            where = f"root starting at [{_SOURCE}; line: 1]"
        rule = f"expected '{']' if char == '}' else '}'}' (for {where})"
        if self._newer and not self._open:
            rule = f"no open {'Object' if char == '}' else 'Array'} to close"
        self._fail_at(f"Unexpected close marker '{char}': {rule}")

    def _comma(self, char: str) -> str:
        kind = _NAMES[self._open[-1][0]]
        if char != ",":
            self._unexpected(char, f"was expecting comma to separate {kind} entries")
        char = self._after_blanks()
        if char == _END:
            self._end(f" within/between {kind} entries")
        return char

    def _name(self, char: str) -> str:
        """Reads a field's name and its colon. Returns the first character of its value."""
        if char != '"':
            self._unexpected(char, "was expecting double-quote to start field name")
        self._string(" in field name", "name")
        char = self._after_blanks()
        if char not in (":", _END):
            self._unexpected(char, "was expecting a colon to separate field name and value")
        if char == _END or (char := self._after_blanks()) == _END:
            self._end(" within/between Object entries")
        return char

    def _begin(self, char: str) -> bool:
        """Reads a scalar, or opens an array or an object: whether nothing stands before the next token."""
        if char in _NAMES:
            self._open.append((char, self._at - 1))
            if len(self._open) > _DEPTH_MAX:
                limit = "from `StreamReadConstraints.getMaxNestingDepth()`"
                raise _Fault(
                    f"Document nesting depth ({_DEPTH_MAX + 1}) exceeds the maximum allowed ({_DEPTH_MAX}, {limit})"
                )
            return True
        if char == '"':
            self._string(": was expecting closing quote for a string value", "string value")
        elif char == "-" or "0" <= char <= "9":
            self._number(char)
        elif char in _LITERALS:
            self._literal(_LITERALS[char], 1)
            if char in "NI":
                self._not_standard(_LITERALS[char])
        elif char == "+":
            self._signed_start("+")
        elif _starts_identifier(char):
            self._token(char)
        else:
            self._unexpected(char, f"expected a valid value {_EXPECTED}")
        return False

    # -- scalars

    def _string(self, end: str, what: str) -> None:
        while (char := self._next()) != '"':
            if char == _END:
                self._end(end)
            if char == "\\":
                self._escape()
            elif char < " ":
                self._units[self._at - 1] = ord(" ")  # a line that ends within a token is not counted
                self._fail_at(
                    f"Illegal unquoted character ({_described(char)}): has to be escaped using backslash to be "
                    f"included in {what}"
                )

    def _escape(self) -> None:
        char = self._next()
        for _ in range(4 if char == "u" else 0):
            digit = self._next()
            if digit == _END:
                self._end(" in character escape sequence")
            if digit not in "0123456789abcdefABCDEF":
                self._unexpected(chr(ord(digit) & 0xFF), "expected a hex-digit for character escape sequence")
        if char == _END:
            self._end(" in character escape sequence")
        if char != "u" and char not in _ESCAPES:
            self._fail_at(f"Unrecognized character escape {_described(char)}")

    def _literal(self, literal: str, at: int) -> None:
        """The rest of a literal. Raises _Fault for another word."""
        while at < len(literal):
            if self._peek() != literal[at]:
                self._token(literal[:at])
            self._at += 1
            at += 1
        char = self._peek()
        if char >= "0" and char not in "]}" and _continues_identifier(char):
            self._token(literal)

    def _token(self, start: str) -> NoReturn:
        token = start
        while _continues_identifier(char := self._peek()):
            self._at += 1
            token += char
            if len(token) >= _TOKEN_MAX:
                token += "..."
                break
        self._fail(f"Unrecognized token '{_printed(token)}': was expecting {_EXPECTED}")

    def _number(self, char: str) -> None:
        if char == "-":
            char = self._next()
            if char == _END:
                self._end(f"No digit following {'' if self._newer else 'minus '}sign")
            if char == ".":
                self._unexpected(char, f"expected a valid value {_EXPECTED}")
            if not "0" <= char <= "9":
                self._at -= 1
                self._signed_start("-")
        if char == "0" and "0" <= self._peek() <= "9":
            self._fail("Invalid numeric value: Leading zeroes not allowed")
        length = (char != "0") + self._digits()
        if self._peek() == ".":
            self._at += 1
            length += (more := self._digits())
            if not more:
                self._unexpected_in_number(self._peek() or ".", "Decimal point not followed by a digit")
        if self._peek() in ("e", "E"):
            length += self._exponent()
        if length > NUMBER_MAX:
            limit = "from `StreamReadConstraints.getMaxNumberLength()`"
            raise _Fault(f"Number value length ({length}) exceeds the maximum allowed ({NUMBER_MAX}, {limit})")
        char = self._peek()
        if not self._open and char not in (_END, " ", "\t", "\r", "\n"):
            self._at += 1
            self._unexpected(char, "Expected space separating root-level values")

    def _exponent(self) -> int:
        """Its digits; the letter is next."""
        self._at += 1
        signed = self._peek() in ("+", "-")
        self._at += signed
        if self._peek() == _END:
            self._end("expected a digit for number exponent")
        digits = self._digits()
        if not digits:
            char, self._at = self._peek(), self._at - signed
            self._unexpected_in_number(char, "Exponent indicator not followed by a digit")
        return digits

    def _digits(self) -> int:
        start = self._at
        while "0" <= self._peek() <= "9":
            self._at += 1
        return self._at - start

    def _signed_start(self, sign: str) -> NoReturn:
        """A sign without a digit, or a plus."""
        char = self._next()
        if char == _END:
            self._end(" in a Number value")
        if char == "I":
            char = self._next()
            if char == _END:
                self._end(" in a Number value")
            if word := {"n": "Infinity", "N": "INF"}.get(char):
                self._literal(sign + word, 3)
                self._not_standard(sign + word)
        if sign == "+":
            rule = "JSON spec does not allow numbers to have plus signs: enable `JsonReadFeature."
            self._unexpected_in_number("+", f"{rule}ALLOW_LEADING_PLUS_SIGN_FOR_NUMBERS` to allow")
        self._units[self._at - 1] = ord(" ")
        self._unexpected_in_number(char, "expected digit (0-9) to follow minus sign, for valid numeric value")

    # -- faults

    def _not_standard(self, token: str) -> NoReturn:
        self._fail(f"Non-standard token '{token}': enable `JsonReadFeature.ALLOW_NON_NUMERIC_NUMBERS` to allow")

    def _unexpected(self, char: str, rule: str) -> NoReturn:
        self._fail_at(f"Unexpected character ({_described(char)}): {rule}")

    def _unexpected_in_number(self, char: str, rule: str) -> NoReturn:
        self._fail_at(f"Unexpected character ({_described(char)}) in numeric value: {rule}")

    def _end(self, text: str) -> NoReturn:
        self._fail(f"Unexpected end-of-input{text}")

    def _fail_at(self, text: str) -> NoReturn:
        """About the character that was read last."""
        self._at -= self._newer
        self._fail(text)

    def _fail(self, text: str) -> NoReturn:
        raise _Fault(f"{text}\n at {self._place(self._at)}")

    def _place(self, at: int) -> str:
        """Line and column of what stands there."""
        before = (
            self._units[:at].tobytes().decode("utf-16-le", "surrogatepass").replace("\r\n", " \n").replace("\r", "\n")
        )
        column = len(before.rpartition("\n")[2].encode("utf-16-le", "surrogatepass")) // 2 + 1
        return f"[{_SOURCE}; line: {before.count(chr(10)) + 1}, column: {column}]"


def _described(char: str) -> str:
    """A character as Jackson names it."""
    code = ord(char)
    if code < 0x20 or 0x7F <= code < 0xA0:
        return f"(CTRL-CHAR, code {code})"
    return f"'{_printed(char)}' (code {code}{f' / 0x{code:x}' if code > 0xFF else ''})"


def _printed(text: str) -> str:
    """Half of a pair of surrogates has no form of its own."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").replace("\ufffd", "?")


def _starts_identifier(char: str) -> bool:
    """Java's `isJavaIdentifierStart`, as far as Python's identifiers and currency signs go."""
    return char.isidentifier() or char in "$_\u00a2\u00a3\u00a4\u00a5\u20ac"


def _continues_identifier(char: str) -> bool:
    """Java's `isJavaIdentifierPart`, which also passes what may be ignored there."""
    if char == _END:
        return False
    ignorable = char <= "\x08" or "\x0e" <= char <= "\x1b" or "\x7f" <= char <= "\x9f" or category(char) == "Cf"
    return ignorable or _starts_identifier(char) or ("a" + char).isidentifier()
