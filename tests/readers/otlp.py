"""Reads a request of OTLP profiles, compressed by gzip or not, and prints a summary as JSON.

Needs the package `opentelemetry-proto` on PYTHONPATH; `cargo xtask setup` installs it below target/readers.
Usage: otlp.py FILE. Folded stacks are root first; inlined functions are frames of their own.
"""

import gzip
import json
import sys

from google.protobuf.unknown_fields import UnknownFieldSet
from opentelemetry.proto.collector.profiles.v1development.profiles_service_pb2 import ExportProfilesServiceRequest


def main(path):
    with open(path, "rb") as file:
        content = file.read()
    if content.startswith(b"\x1f\x8b"):
        content = gzip.decompress(content)
    request = ExportProfilesServiceRequest.FromString(content)
    refuse_unknown_fields(request)
    tables = request.dictionary
    print(json.dumps({
        "bytes": len(content),
        "stacks": len(tables.stack_table) - 1,
        "resources": [resource(entry, tables) for entry in request.resource_profiles],
    }))


def refuse_unknown_fields(message):
    """Fails on a field that this version of the definitions does not have: the sender has another version."""
    unknown = UnknownFieldSet(message)
    if len(unknown) > 0:
        numbers = sorted({field.field_number for field in unknown})
        sys.exit(f"{message.DESCRIPTOR.full_name} has unknown fields: {numbers}")
    for field, value in message.ListFields():
        if field.message_type is not None:
            for part in value if hasattr(value, "__len__") else [value]:
                refuse_unknown_fields(part)


def resource(entry, tables):
    assert entry.HasField("resource"), "a resource is missing"
    profiles = []
    for scope in entry.scope_profiles:
        assert scope.HasField("scope"), "a scope is missing"
        profiles += [profile(one, scope.scope, tables) for one in scope.profiles]
    return {"attributes": {pair.key: pair.value.string_value for pair in entry.resource.attributes}, "profiles": profiles}


def profile(one, scope, tables):
    folded = {}
    for sample in one.samples:
        assert len(sample.values) == 1 and not sample.timestamps_unix_nano, "not one value without a timestamp"
        stack = ";".join(reversed(frames(tables.stack_table[sample.stack_index], tables)))
        folded[stack] = folded.get(stack, 0) + sample.values[0]
    text = tables.string_table
    return {
        "scope": [scope.name, scope.version],
        "sample_type": [text[one.sample_type.type_strindex], text[one.sample_type.unit_strindex]],
        "period_type": [text[one.period_type.type_strindex], text[one.period_type.unit_strindex]],
        "period": one.period,
        "time_unix_nano": one.time_unix_nano,
        "duration_nano": one.duration_nano,
        "samples": len(one.samples),
        "total": sum(folded.values()),
        "folded": folded,
    }


def frames(stack, tables):
    """The names of functions, leaf first."""
    names = []
    for index in stack.location_indices:
        assert index > 0, "a stack has the null location"
        for line in tables.location_table[index].lines:
            assert line.function_index > 0, "a line has the null function"
            names.append(tables.string_table[tables.function_table[line.function_index].name_strindex])
    return names


if __name__ == "__main__":
    main(sys.argv[1])
