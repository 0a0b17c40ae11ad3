"""Decodes the OTLP request in a file, and prints it as canonical.rs does: a line for each sample type,
and one for each of its samples."""

import sys

from opentelemetry.proto.collector.profiles.v1development import profiles_service_pb2


def quoted(text):
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def text_of(value):
    if value.WhichOneof("value") == "array_value":
        return "|".join(text_of(element) for element in value.array_value.values)
    return value.string_value


with open(sys.argv[1], "rb") as file:
    request = profiles_service_pb2.ExportProfilesServiceRequest.FromString(file.read())
dictionary = request.dictionary
strings = dictionary.string_table


def lines_of(location):
    for line in location.lines:
        function = dictionary.function_table[line.function_index]
        indices = (function.name_strindex, function.system_name_strindex, function.filename_strindex)
        yield "|".join([strings[index] for index in indices] + [str(function.start_line), str(line.line)])


def frame(index):
    location = dictionary.location_table[index]
    mapping = ""
    if location.mapping_index:
        at = dictionary.mapping_table[location.mapping_index]
        attributes = [dictionary.attribute_table[index] for index in at.attribute_indices]
        build_id = "".join(text_of(attribute.value) for attribute in attributes)
        mapping = f"{at.memory_start:x}-{at.memory_limit:x}+{at.file_offset:x} {strings[at.filename_strindex]} {build_id}"
    return f"{location.address:x}@{mapping}({','.join(lines_of(location))})"


def label(index):
    attribute = dictionary.attribute_table[index]
    key = strings[attribute.key_strindex]
    if attribute.value.WhichOneof("value") == "int_value":
        return f"{key}={attribute.value.int_value} {strings[attribute.unit_strindex]}"
    return f"{key}={quoted(attribute.value.string_value)}"


def identity(sample):
    stack = dictionary.stack_table[sample.stack_index]
    frames = ";".join(frame(index) for index in stack.location_indices)
    labels = sorted((label(index) for index in sample.attribute_indices), key=lambda text: text.encode())
    return f"{frames} [{', '.join(labels)}]"


sys.stdout.reconfigure(encoding="utf-8", newline="\n")
for resource in request.resource_profiles:
    names = {attribute.key: attribute.value.string_value for attribute in resource.resource.attributes}
    assert names == {"service.name": "shop", "host.name": "\U0001f6a2"}, names
    for scope in resource.scope_profiles:
        default = scope.scope.attributes[0].value.string_value
        for profile in scope.profiles:
            kind, period = profile.sample_type, profile.period_type
            notes = "".join(text_of(dictionary.attribute_table[index].value) for index in profile.attribute_indices)
            print(
                f"{strings[kind.type_strindex]}/{strings[kind.unit_strindex]} of {default} every {profile.period} "
                f"{strings[period.type_strindex]}/{strings[period.unit_strindex]} at {profile.time_unix_nano} "
                f"for {profile.duration_nano} {notes}"
            )
            sums = {identity(sample): sample.values[0] for sample in profile.samples}
            for name in sorted(sums, key=lambda text: text.encode()):
                print(f"  {sums[name]} {name}")
