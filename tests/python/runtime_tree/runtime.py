"""A stand-in for the programs of a device's runtime.

    python runtime.py PARAMS

Publishes at 20 Hz what a model publishes, until it is ended. The file `behaviour` in the working directory says what goes wrong.
"""

import json
import os
import pathlib
import sys
import time

params = pathlib.Path(sys.argv[1])
behaviour = pathlib.Path("behaviour").read_text().strip()
bus = pathlib.Path("bus")
bus.mkdir(exist_ok=True)
for service in bus.iterdir():
    service.unlink()
with open("seen", "a") as seen:
    seen.write((params / "Model").read_text() + "\n")


def publish(service, message, count):
    beside = bus / f".{service}"
    beside.write_text(json.dumps({"count": count, "message": message}))
    os.replace(beside, bus / service)


def line(offset, step):
    points = range(33)
    return {"x": [float(p) for p in points], "y": [offset + step / 1000] * 33, "z": [0.0] * 33}


def model(step):
    message = {
        "frameId": step,
        "position": line(0, step),
        "laneLines": [line(offset, step) for offset in (-5, -2, 2, 5)],
        "laneLineProbs": [0.5 + step / 10000] * 4,
        "roadEdges": [line(offset, step) for offset in (-7, 7)],
        "leadsV3": [{"x": [40.0 + step / 100], "y": [0.0], "v": [1.0], "a": [0.0], "prob": 0.5}],
        "temporalPoseDEPRECATED": {"trans": [1.0 + step / 1000, 0.0, 0.0], "rot": [0.0, 0.0, 0.0]},
        "action": {"desiredCurvature": 0.0, "desiredAcceleration": 0.0},
    }
    if behaviour == "nan":
        message["laneLines"][2]["y"][7] = "nan"
    return message


def driver(step):
    face = {"faceOrientation": [0.1, 0.2, step / 1000], "facePosition": [0.0, 0.0], "faceProb": 0.9}
    return {"frameId": step, "leftDriverData": face, "rightDriverData": face}


if behaviour == "fallback":
    (params / "Model").write_text("rdf")
for step in range(100_000):
    if behaviour == "die" and step == 20:
        sys.exit("the planted end of modeld")
    publish("roadCameraState", {"frameId": step, "sensor": "os04c10"}, step)
    if behaviour != "silent":
        publish("modelV2", model(step), step)
    if behaviour != "no_driver":
        publish("driverStateV2", driver(step), step)
    time.sleep(0.05)
