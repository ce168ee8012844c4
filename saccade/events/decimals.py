"""Compiled parser and formatter for text files: lines of decimal numbers -> columns, exact to the digit, and columns -> lines.

By hand: parsers of floats round absolute times, and Python's Decimal works number by number.
Helpers take numbers, not arrays: numba counts references at each call that passes an array, which made this three times slower.
"""

import numpy as np

from saccade.machine import compiled

NEWLINE, RETURN, BLANK, TAB, COMMA, SEMICOLON = 10, 13, 32, 9, 44, 59
PLUS, MINUS, DOT, ZERO, NINE, HASH, PERCENT, LETTER_E = 43, 45, 46, 48, 57, 35, 37, 101
TRUE, FALSE = int.from_bytes(b"true"), int.from_bytes(b"false")
SKIPPED, TIME, X, Y, POLARITY = 0, 1, 2, 3, 4  # role of a column
FINE, NOT_A_NUMBER, NOT_WHOLE, OUT_OF_RANGE, EMPTY, TOO_FEW, TOO_MANY = 0, 1, 2, 3, 4, 5, 6
SAW_ZERO, SAW_MINUS = 1, 2
# What a number has had so far, as bits: digits, a decimal point, nonzero digits that no longer fit into the mantissa, an exponent's letter,
# its sign, its minus sign, its digits; or something that no number has.
DIGITS, POINT, REST, POWER, POWER_SIGN, POWER_NEGATIVE, POWER_DIGITS, WRONG = 1, 2, 4, 8, 16, 32, 64, 128
EIGHTEEN_DIGITS = 10**17  # a mantissa from here on takes no more digits; a value from here on is out of range


@compiled
def parse_lines(text, kinds, exponent, t, x, y, p):
    """Fill the columns; stop at the first wrong field. `text` must end with a newline, so that no loop needs a limit.

    Times are multiplied by 10^exponent. Returns (events, lines, status, position of the wrong field, its column, SAW_* flags).
    """
    i, events, lines, saw = 0, 0, 0, 0
    while i < len(text):
        while _is_blank(text[i]):
            i += 1
        if text[i] == HASH or text[i] == PERCENT:
            while text[i] != NEWLINE:
                i += 1
        if text[i] == NEWLINE:
            i, lines = i + 1, lines + 1
            continue
        for column in range(len(kinds)):
            if text[i] == NEWLINE:
                return events, lines, TOO_FEW, i, column, saw
            start, kind = i, kinds[column]
            mantissa, power, state, status = 0, 0, 0, FINE
            if kind == SKIPPED or (kind == POLARITY and text[i] > NINE):
                while not _ends_field(text[i]):
                    mantissa = (mantissa & 0xFFFFFFFFFF) << 8 | text[i] | 32  # the last six letters, in lower case
                    i += 1
                status = EMPTY if i == start else (FINE if kind == SKIPPED or mantissa in (TRUE, FALSE) else NOT_A_NUMBER)
                value = 1 if mantissa == TRUE else 0
            else:
                negative = text[i] == MINUS
                i += negative or text[i] == PLUS
                while ZERO <= text[i] <= NINE and mantissa < EIGHTEEN_DIGITS:  # most numbers are whole and end here
                    mantissa = mantissa * 10 + (text[i] - ZERO)
                    state = DIGITS
                    i += 1
                scale = exponent if kind == TIME else 0
                while not _ends_field(text[i]):
                    mantissa, scale, power, state = _next(mantissa, scale, power, state, text[i])
                    i += 1
                value, status = _finish(mantissa, scale - power if state & POWER_NEGATIVE else scale + power, state, negative)
                status = EMPTY if i == start else _check(kind, value, status)
            if status != FINE:
                return events, lines, status, start, column, saw
            if kind == TIME:
                t[events] = value
            elif kind == X:
                x[events] = value
            elif kind == Y:
                y[events] = value
            elif kind == POLARITY:
                p[events] = value > 0
                saw |= 0 if value > 0 else (SAW_ZERO if value == 0 else SAW_MINUS)
            while _is_blank(text[i]):
                i += 1
            if column < len(kinds) - 1 and (text[i] == COMMA or text[i] == SEMICOLON):
                i += 1
                while _is_blank(text[i]):
                    i += 1
        if text[i] != NEWLINE:
            return events, lines, TOO_MANY, i, len(kinds), saw
        events += 1
    return events, lines, FINE, i, 0, saw


@compiled
def _is_blank(character):
    return character in (BLANK, TAB, RETURN)


@compiled
def _ends_field(character):
    """Control characters end a field, too; those that aren't blanks then fail as fields of their own."""
    return character <= BLANK or character in (COMMA, SEMICOLON)


@compiled
def _next(mantissa, scale, power, state, character):
    """Add a character to a number mantissa * 10^(scale +- power); nonzero digits after the eighteenth only set REST."""
    if ZERO <= character <= NINE:
        if state & POWER:
            return mantissa, scale, min(power * 10 + (character - ZERO), 1000), state | POWER_DIGITS
        if mantissa < EIGHTEEN_DIGITS:
            return mantissa * 10 + (character - ZERO), scale - (1 if state & POINT else 0), power, state | DIGITS
        return mantissa, scale + (0 if state & POINT else 1), power, state | (REST if character != ZERO else 0)
    if character == DOT and not state & (POINT | POWER):
        return mantissa, scale, power, state | POINT
    if (character | 32) == LETTER_E and state & DIGITS and not state & POWER:
        return mantissa, scale, power, state | POWER
    if character in (MINUS, PLUS) and state & POWER and not state & (POWER_DIGITS | POWER_SIGN):
        return mantissa, scale, power, state | POWER_SIGN | (POWER_NEGATIVE if character == MINUS else 0)
    return mantissa, scale, power, state | WRONG


@compiled
def _finish(mantissa, scale, state, negative):
    """(+-mantissa * 10^scale rounded half to even, status: FINE, NOT_A_NUMBER, OUT_OF_RANGE or NOT_WHOLE)."""
    if state & WRONG or not state & DIGITS or (state & POWER and not state & POWER_DIGITS):
        return 0, NOT_A_NUMBER
    rest = state & REST != 0
    if scale >= 0:
        for _ in range(min(scale, 18)):
            if mantissa < EIGHTEEN_DIGITS:
                mantissa *= 10
        return -mantissa if negative else mantissa, OUT_OF_RANGE if mantissa >= EIGHTEEN_DIGITS else FINE
    if scale < -18:
        return 0, NOT_WHOLE if mantissa != 0 or rest else FINE
    divisor = 1
    for _ in range(-scale):
        divisor *= 10
    value = mantissa // divisor
    remainder = mantissa - value * divisor
    whole = remainder == 0 and not rest
    if remainder > divisor // 2 or (remainder == divisor // 2 and not whole and (rest or value & 1)):
        value += 1
    if value >= EIGHTEEN_DIGITS:
        return value, OUT_OF_RANGE
    return -value if negative else value, FINE if whole else NOT_WHOLE


@compiled
def _check(kind, value, status):
    """Status by column: times may be rounded, the others must be whole and in range."""
    if kind == TIME:
        return FINE if status == NOT_WHOLE else status
    low, high = (-1, 1) if kind == POLARITY else (0, 65535)
    return OUT_OF_RANGE if status == FINE and (value < low or value > high) else status


@compiled
def format_lines(t, x, y, p, text):
    """Write one line t,x,y,p per event into `text`; returns the number of bytes (at most 36 an event)."""
    end = 0
    for i in range(len(t)):
        for value in (t[i], np.int64(x[i]), np.int64(y[i])):
            if value < 0:
                text[end] = MINUS
                end += 1
                value = -value
            digits, power = 1, 10
            while digits < 18 and value >= power:
                digits += 1
                power *= 10
            for place in range(end + digits - 1, end - 1, -1):
                text[place] = ZERO + value % 10
                value //= 10
            end += digits
            text[end] = COMMA
            end += 1
        text[end] = ZERO + p[i]
        text[end + 1] = NEWLINE
        end += 2
    return end
