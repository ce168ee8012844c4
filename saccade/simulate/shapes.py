"""DISTANCE TRAVELLED -> SILHOUETTE: cars, pedestrians and two-wheelers out of capsules, quadrilaterals and rings.

Everything about an object (place, size, legs, wheels) is a function of the distance it has travelled: when that stands still, so do they.
Local coordinates: the object is 1 high, stands on y = 0, up is negative, forward is positive x.
"""

import math

from saccade.machine import compiled

CLASSES = ("car", "pedestrian", "two-wheeler")
CAR, PEDESTRIAN, BICYCLE, CAR_BEHIND, MOTORCYCLE = range(5)
CLASS_OF_KIND = (0, 1, 2, 0, 2)

# Columns of a track's traits
X, Y, ALONG_X, ALONG_Y, SIZE, GROWTH, FACING, PHASE, GRAIN_X, GRAIN_Y, GRAIN, PACE = range(12)
BODY, SECOND, THIRD, DARK, LIGHT, SKIN = range(12, 18)  # intensities
SHADES = slice(BODY, SKIN + 1)
FORM, DETAIL = 18, 19  # numbers in [0, 1] that vary the form
TRAITS = 20

# Columns of a part: kind, then capsule x0 y0 x1 y1 radius | quadrilateral x y four times | ring x y radius half-width; intensity
CAPSULE, QUADRILATERAL, RING = range(3)
SHADE = 9
PART = 10
MOST_PARTS = 32

# How far any point of the silhouette moves, at the most, while the object travels one pixel: rims turn, feet swing (tested).
PACES = (2.0, 3.3, 2.4, 1.0, 2.0)
WIDEST = 1.8  # no point is farther from the place on the ground than this, in heights


@compiled
def _capsule(parts, n, x0, y0, x1, y1, radius, shade):
    parts[n, 0] = CAPSULE
    parts[n, 1], parts[n, 2], parts[n, 3], parts[n, 4], parts[n, 5] = x0, y0, x1, y1, radius
    parts[n, SHADE] = shade
    return n + 1


@compiled
def _ring(parts, n, x, y, radius, half_width, shade):
    parts[n, 0] = RING
    parts[n, 1], parts[n, 2], parts[n, 3], parts[n, 4] = x, y, radius, half_width
    parts[n, SHADE] = shade
    return n + 1


@compiled
def _quadrilateral(parts, n, x0, y0, x1, y1, x2, y2, x3, y3, shade):
    parts[n, 0] = QUADRILATERAL
    parts[n, 1], parts[n, 2], parts[n, 3], parts[n, 4] = x0, y0, x1, y1
    parts[n, 5], parts[n, 6], parts[n, 7], parts[n, 8] = x2, y2, x3, y3
    parts[n, SHADE] = shade
    return n + 1


@compiled
def _spokes(parts, n, x, y, length, turn, number, radius, shade):
    for i in range(number):
        angle = turn + math.pi * i / number
        dx, dy = length * math.cos(angle), length * math.sin(angle)
        n = _capsule(parts, n, x - dx, y - dy, x + dx, y + dy, radius, shade)
    return n


@compiled
def _car(parts, traits, travelled):
    body, second, dark, light = traits[BODY], traits[SECOND], traits[DARK], traits[LIGHT]
    front = 1.2 + 0.25 * traits[FORM]  # half the length
    boot = 0.75 + 0.45 * traits[DETAIL]  # how far the roof reaches back: saloon to estate
    n = _quadrilateral(parts, 0, -0.95 * boot, -0.56, 0.8, -0.54, 0.32, -1.0, -0.78 * boot, -1.0, body)
    n = _quadrilateral(parts, n, -front, -0.62, front * 0.65, -0.58, front * 0.65, -0.18, -front * 0.97, -0.18, body)
    n = _quadrilateral(parts, n, front * 0.5, -0.58, front, -0.47, front, -0.2, front * 0.5, -0.18, body)
    n = _quadrilateral(parts, n, -0.8 * boot, -0.6, -0.08, -0.6, -0.08, -0.92, -0.68 * boot, -0.92, second)
    n = _quadrilateral(parts, n, 0.02, -0.6, 0.62, -0.59, 0.27, -0.92, 0.02, -0.92, second)
    n = _capsule(parts, n, -front + 0.12, -0.3, front - 0.12, -0.28, 0.035, dark)
    n = _capsule(parts, n, front - 0.08, -0.42, front - 0.16, -0.43, 0.05, light)
    n = _capsule(parts, n, -front + 0.07, -0.52, -front + 0.07, -0.46, 0.05, traits[THIRD])
    turn = traits[PHASE] + travelled / 0.23
    for side in (-1.0, 1.0):
        x = side * (front - 0.45)
        n = _capsule(parts, n, x, -0.23, x, -0.23, 0.23, dark)
        n = _spokes(parts, n, x, -0.23, 0.14, turn, 3, 0.035, light)
    return n


@compiled
def _car_behind(parts, traits):
    body, second, dark, light = traits[BODY], traits[SECOND], traits[DARK], traits[LIGHT]
    half = 0.56 + 0.1 * traits[FORM]
    n = _quadrilateral(parts, 0, -half, -0.25, -half, 0.0, -half + 0.18, 0.0, -half + 0.18, -0.25, dark)
    n = _quadrilateral(parts, n, half - 0.18, -0.25, half - 0.18, 0.0, half, 0.0, half, -0.25, dark)
    n = _quadrilateral(parts, n, -half * 0.98, -0.58, half * 0.98, -0.58, half * 0.74, -1.0, -half * 0.74, -1.0, body)
    n = _quadrilateral(parts, n, -half, -0.6, half, -0.6, half, -0.16, -half, -0.16, body)
    n = _quadrilateral(parts, n, -half * 0.8, -0.62, half * 0.8, -0.62, half * 0.66, -0.93, -half * 0.66, -0.93, second)
    for side in (-1.0, 1.0):
        n = _capsule(parts, n, side * (half - 0.17), -0.5, side * (half - 0.08), -0.5, 0.055, light)
    n = _quadrilateral(parts, n, -0.17, -0.42, 0.17, -0.42, 0.17, -0.3, -0.17, -0.3, light)
    n = _capsule(parts, n, -half + 0.06, -0.2, half - 0.06, -0.2, 0.035, dark)
    return n


@compiled
def _limb(parts, n, x0, y0, x1, y1, bend, radius, shade):
    """Two capsules from a hip (or shoulder) to a foot (or hand), the joint `bend` to the front of the line between."""
    joint_x, joint_y = (x0 + x1) / 2 + bend, (y0 + y1) / 2
    n = _capsule(parts, n, x0, y0, joint_x, joint_y, radius, shade)
    return _capsule(parts, n, joint_x, joint_y, x1, y1, radius * 0.85, shade)


@compiled
def _pedestrian(parts, traits, travelled):
    coat, trousers, dark, skin = traits[BODY], traits[SECOND], traits[DARK], traits[SKIN]
    broad = 0.09 + 0.035 * traits[FORM]
    phase = traits[PHASE] + travelled * 2 * math.pi / 0.9  # one stride of two steps is 0.9 of the height
    n = 0
    for side in (0.0, math.pi):  # far leg and arm first; the body covers them
        shade = 0.75 if side == 0.0 else 1.0
        swing, lift = math.sin(phase + side), max(0.0, math.cos(phase + side)) ** 2
        foot_x, foot_y = 0.19 * swing, -0.03 - 0.07 * lift
        n = _limb(parts, n, 0.0, -0.48, foot_x, foot_y, 0.02 + 0.05 * lift, 0.05, trousers * shade)
        n = _capsule(parts, n, foot_x, foot_y, foot_x + 0.055, foot_y, 0.03, dark)
        if side == 0.0:
            n = _limb(parts, n, 0.0, -0.78, -0.15 * swing + 0.03, -0.47, -0.03, 0.035, coat * shade)
            n = _capsule(parts, n, 0.0, -0.76, 0.0, -0.5, broad, coat)
        else:
            n = _limb(parts, n, 0.0, -0.78, -0.15 * swing + 0.03, -0.47, -0.03, 0.035, traits[THIRD])
    n = _capsule(parts, n, 0.01, -0.925, 0.01, -0.925, 0.075, skin)
    if traits[DETAIL] > 0.5:  # hair or a hat
        n = _capsule(parts, n, -0.03, -0.955, 0.03, -0.965, 0.035, dark)
    return n


@compiled
def _rider(parts, n, traits, hand_x, hand_y, seat_x, seat_y):
    coat, skin, dark = traits[BODY], traits[SKIN], traits[DARK]
    shoulder_x, shoulder_y = seat_x + 0.2, seat_y - 0.27
    n = _capsule(parts, n, seat_x, seat_y - 0.03, shoulder_x, shoulder_y, 0.075, coat)
    n = _limb(parts, n, shoulder_x, shoulder_y, hand_x, hand_y, -0.04, 0.032, traits[THIRD])
    n = _capsule(parts, n, shoulder_x + 0.06, -0.93, shoulder_x + 0.06, -0.93, 0.07, skin)
    if traits[DETAIL] > 0.4:
        n = _capsule(parts, n, shoulder_x + 0.03, -0.95, shoulder_x + 0.08, -0.955, 0.045, dark)
    return n


@compiled
def _bicycle(parts, traits, travelled):
    frame, trousers, dark = traits[LIGHT], traits[SECOND], traits[DARK]
    turn = traits[PHASE] + travelled / 0.21
    pedal = traits[PHASE] + travelled * 2 * math.pi / 2.0
    seat_x, seat_y = -0.12, -0.5
    dx, dy = 0.075 * math.cos(pedal), 0.075 * math.sin(pedal)
    n = _limb(parts, 0, seat_x, seat_y - 0.02, -0.02 - dx, -0.21 - dy, 0.13, 0.045, trousers * 0.75)
    for side in (-1.0, 1.0):
        n = _ring(parts, n, side * 0.34, -0.21, 0.185, 0.025, dark)
        n = _spokes(parts, n, side * 0.34, -0.21, 0.17, turn, 2, 0.01, frame)
    n = _capsule(parts, n, -0.34, -0.21, -0.02, -0.21, 0.016, frame)
    n = _capsule(parts, n, -0.02, -0.21, seat_x, seat_y + 0.03, 0.016, frame)
    n = _capsule(parts, n, seat_x, seat_y + 0.09, 0.22, -0.45, 0.016, frame)
    n = _capsule(parts, n, -0.02, -0.21, 0.22, -0.45, 0.016, frame)
    n = _capsule(parts, n, 0.34, -0.21, 0.21, -0.55, 0.018, frame)
    n = _limb(parts, n, seat_x, seat_y - 0.02, -0.02 + dx, -0.21 + dy, 0.13, 0.045, trousers)
    return _rider(parts, n, traits, 0.24, -0.56, seat_x, seat_y)


@compiled
def _motorcycle(parts, traits, travelled):
    body, trousers, dark, light = traits[LIGHT], traits[SECOND], traits[DARK], traits[THIRD]
    turn = traits[PHASE] + travelled / 0.2
    n = 0
    for side in (-1.0, 1.0):
        n = _ring(parts, n, side * 0.42, -0.2, 0.15, 0.05, dark)
        n = _spokes(parts, n, side * 0.42, -0.2, 0.12, turn, 2, 0.022, light)
    n = _quadrilateral(parts, n, -0.22, -0.2, 0.2, -0.16, 0.22, -0.42, -0.3, -0.4, dark)
    n = _quadrilateral(parts, n, -0.02, -0.44, 0.22, -0.36, 0.3, -0.55, 0.02, -0.58, body)
    n = _capsule(parts, n, -0.45, -0.47, 0.22, -0.45, 0.055, body)
    n = _capsule(parts, n, 0.42, -0.2, 0.26, -0.6, 0.03, body)
    n = _capsule(parts, n, 0.3, -0.52, 0.32, -0.52, 0.05, light)
    n = _capsule(parts, n, -0.45, -0.18, -0.05, -0.16, 0.03, light)
    n = _limb(parts, n, -0.14, -0.52, 0.02, -0.2, 0.14, 0.055, trousers)
    n = _capsule(parts, n, 0.02, -0.19, 0.08, -0.19, 0.03, dark)
    return _rider(parts, n, traits, 0.25, -0.6, -0.14, -0.53)


@compiled
def place(kind, traits, distance, x, y, parts):
    """Write the parts of an object that has travelled `distance` px and stands at (x, y); returns their number."""
    size = traits[SIZE] * (1 + traits[GROWTH] * distance)
    travelled = distance / traits[SIZE]
    if kind == CAR:
        number = _car(parts, traits, travelled)
    elif kind == PEDESTRIAN:
        number = _pedestrian(parts, traits, travelled)
    elif kind == BICYCLE:
        number = _bicycle(parts, traits, travelled)
    elif kind == CAR_BEHIND:
        number = _car_behind(parts, traits)
    else:
        number = _motorcycle(parts, traits, travelled)
    across = size * traits[FACING]
    for n in range(number):
        shape = parts[n, 0]
        pairs = 2 if shape == CAPSULE else 4 if shape == QUADRILATERAL else 1
        for i in range(pairs):
            parts[n, 1 + 2 * i] = x + across * parts[n, 1 + 2 * i]
            parts[n, 2 + 2 * i] = y + size * parts[n, 2 + 2 * i]
        if shape == CAPSULE:
            parts[n, 5] *= size
        elif shape == RING:
            parts[n, 3] *= size
            parts[n, 4] *= size
    return number
