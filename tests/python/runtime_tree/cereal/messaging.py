"""A stand-in for a device's messaging: the newest message of each service is a JSON file beside this package."""

import json
import pathlib
import time
import types

BUS = pathlib.Path(__file__).resolve().parent.parent / "bus"
POLL = 0.004


def as_message(value):
    if isinstance(value, dict):
        return types.SimpleNamespace(**{name: as_message(each) for name, each in value.items()})
    if isinstance(value, list):
        return [as_message(each) for each in value]
    return {"nan": float("nan"), "inf": float("inf")}.get(value, value) if isinstance(value, str) else value


class SubMaster:
    def __init__(self, services):
        self.services = services
        self.updated = dict.fromkeys(services, False)
        self.messages = {}
        # What was published before is not received, as on a device: it may be of a program that has ended.
        self.counts = {service: count for service in services if (count := self._published(service)) is not None}

    @staticmethod
    def _published(service):
        try:
            return json.loads((BUS / service).read_text())["count"]
        except (FileNotFoundError, json.JSONDecodeError):
            return None

    def __getitem__(self, service):
        return self.messages[service]

    def update(self, timeout):
        self.updated = dict.fromkeys(self.services, False)
        until = time.monotonic() + timeout / 1000
        while not any(self.updated.values()) and time.monotonic() < until:
            for service in self.services:
                try:
                    found = json.loads((BUS / service).read_text())
                except (FileNotFoundError, json.JSONDecodeError):
                    continue
                if found["count"] != self.counts.get(service):
                    self.counts[service] = found["count"]
                    self.messages[service] = as_message(found["message"])
                    self.updated[service] = True
            time.sleep(POLL)
