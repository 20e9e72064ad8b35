"""Says what the runtime publishes: one JSON object a line on standard output, until standard input ends.

    python sampler.py

Needs the tree's own `cereal.messaging`. A quantity that a message does not have is null; a number that JSON cannot write is the
string "nan", "inf" or "-inf". Everything is judged by who reads the lines.
"""

import json
import math
import sys
import threading
import time

SERVICES = ["modelV2", "cameraOdometry", "driverStateV2", "roadCameraState"]
WAIT_MS = 100


def load_messaging():
    try:
        import cereal.messaging as messaging
    except ImportError:
        from openpilot.cereal import messaging
    return messaging


def number(value):
    value = float(value)
    return value if math.isfinite(value) else str(value)


def field(message, *names):
    """The first of the fields that the message has, else None. Older and newer trees name some of them differently."""
    for name in names:
        try:
            return getattr(message, name)
        except Exception:  # capnp raises several kinds for a field that its schema lacks
            continue
    return None


def numbers(*sequences):
    if any(sequence is None for sequence in sequences):
        return None
    return [number(value) for sequence in sequences for value in sequence]


def points(line):
    return None if line is None else numbers(field(line, "x"), field(line, "y"), field(line, "z"))


def lines(several):
    if several is None:
        return None
    each = [points(line) for line in several]
    return None if any(line is None for line in each) else [value for line in each for value in line]


def leads(several):
    if several is None:
        return None
    values = []
    for lead in several:
        found = numbers(field(lead, "x"), field(lead, "y"), field(lead, "v"), field(lead, "a"))
        probability = field(lead, "prob")
        if found is None or probability is None:
            return None
        values += [*found, number(probability)]
    return values


def pose(message):
    return None if message is None else numbers(field(message, "trans"), field(message, "rot"))


def action(message):
    value = field(message, "action")
    if value is None:
        return None
    both = [field(value, "desiredCurvature"), field(value, "desiredAcceleration")]
    return None if None in both else [number(each) for each in both]


def driver(message):
    if message is None:
        return None
    values = numbers(field(message, "faceOrientation"), field(message, "facePosition"))
    probability = field(message, "faceProb")
    return None if values is None or probability is None else [*values, number(probability)]


def model(message):
    return {
        "path": points(field(message, "position")),
        "lane_lines": lines(field(message, "laneLines")),
        "lane_line_probs": numbers(field(message, "laneLineProbs")),
        "road_edges": lines(field(message, "roadEdges")),
        "leads": leads(field(message, "leadsV3")),
        "pose": pose(field(message, "temporalPose", "temporalPoseDEPRECATED")),
        "action": action(message),
    }


def contents(service, message):
    if service == "modelV2":
        return model(message)
    if service == "cameraOdometry":
        return {"pose": pose(message)}
    if service == "driverStateV2":
        return {
            "left_driver": driver(field(message, "leftDriverData")),
            "right_driver": driver(field(message, "rightDriverData")),
        }
    return {}


def say(line):
    sys.stdout.write(json.dumps(line, allow_nan=False) + "\n")
    sys.stdout.flush()


def main():
    ended = threading.Event()

    def wait_for_end():
        sys.stdin.buffer.read()
        ended.set()

    threading.Thread(target=wait_for_end, daemon=True).start()
    messaging = load_messaging()
    services = messaging.SubMaster(SERVICES)
    say({"event": "ready"})
    while not ended.is_set():
        services.update(WAIT_MS)
        for service in SERVICES:
            if not services.updated[service]:
                continue
            message = services[service]
            line = {"event": "message", "service": service, "at": time.monotonic(), "fields": contents(service, message)}
            frame = field(message, "frameId")
            line["frame"] = None if frame is None else int(frame)
            if service == "roadCameraState":
                line["sensor"] = str(field(message, "sensor"))
            say(line)


if __name__ == "__main__":
    main()
