"""Starts and removes pods by containerd's CRI service, as a kubelet does: reads them as JSON from standard input, the pods to
`start`, or `remove` for all that there are.

A container is a command, or a dictionary with the settings that a kubelet takes from a manifest. A container that `ends` is
waited for, and its exit code is printed.

Usage: cri.py SOCKET IMAGE. The field numbers are those of `pkg/apis/runtime/v1/api.proto` of k8s.io/cri-api.
"""

import json
import sys
import time

import grpc

DEADLINE_SECONDS = 60
STOP_SECONDS = 1
# NamespaceMode
CONTAINER, NODE = 1, 2
# ContainerState
EXITED = 2
# SecurityProfile.ProfileType
PROFILES = {"RuntimeDefault": 0, "Unconfined": 1}


def message(*fields):
    """Encodes a message from its fields: numbers with a number, a text or an encoded message."""
    encoded = b""
    for number, value in fields:
        if isinstance(value, int):
            encoded += varint(number << 3) + varint(value)
        else:
            content = value.encode() if isinstance(value, str) else value
            encoded += varint(number << 3 | 2) + varint(len(content)) + content
    return encoded


def varint(number):
    low, high = number & 0x7F, number >> 7
    return bytes([low | 0x80]) + varint(high) if high else bytes([low])


def decoded(content):
    """The fields of a message by their numbers, the last one of each."""
    fields, at = {}, 0

    def number():
        nonlocal at
        value, shift = 0, 0
        while True:
            byte = content[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(content):
        key = number()
        kind, value = key & 7, number()
        assert kind in (0, 2), kind
        if kind == 2:
            value, at = content[at : at + value], at + value
        fields[key >> 3] = value
    return fields


def only_id(response):
    """The only field of a response, an id of 64 characters."""
    assert len(response) == 66 and response[:2] == b"\x0a\x40", response
    return response[2:].decode()


def call(channel, method, request):
    rpc = channel.unary_unary("/runtime.v1." + method)
    return rpc(request, timeout=DEADLINE_SECONDS, wait_for_ready=True)


def wait_for_image(channel, image):
    """The service is notified of an imported image after the import."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not call(channel, "ImageService/ImageStatus", message((1, message((1, image))))):
        assert time.monotonic() < deadline, f"{image} is missing"
        time.sleep(0.05)


def wait_for_exit(channel, container):
    """Returns the exit code."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        status = decoded(call(channel, "RuntimeService/ContainerStatus", message((1, container))))
        status = decoded(status[1])
        if status.get(3) == EXITED:
            return status.get(7, 0)
        assert time.monotonic() < deadline, f"the container {container} does not end"
        time.sleep(0.05)


def security_context(namespaces, settings):
    """LinuxContainerSecurityContext of the `securityContext` of a container in a manifest."""
    context = settings["security_context"]
    capabilities = [(1, name) for name in context["capabilities"]["add"]]
    capabilities += [(2, name) for name in context["capabilities"]["drop"]]
    return message(
        (1, message(*capabilities)),
        (3, namespaces),
        (5, message((1, context["runAsUser"]))),
        (7, int(context["readOnlyRootFilesystem"])),
        (11, int(not context["allowPrivilegeEscalation"])),
        *[(13, path) for path in settings["masked_paths"]],
        *[(14, path) for path in settings["read_only_paths"]],
        (15, message((1, PROFILES[context["seccompProfile"]["type"]]))),
        (16, message((1, PROFILES[context["appArmorProfile"]["type"]]))),
    )


def container_config(metadata, namespaces, image, settings):
    """ContainerConfig of a command in the image, or of settings."""
    if isinstance(settings, list):
        linux = message((2, message((3, namespaces))))
        words = [(3, word) for word in settings]
        return message((1, metadata), (2, message((1, image))), *words, (15, linux))
    linux = message(
        (1, message((4, settings["memory_limit_bytes"]))),
        (2, security_context(namespaces, settings)),
    )
    return message(
        (1, metadata),
        (2, message((1, settings["image"]))),
        *[(4, word) for word in settings["args"]],
        *[(6, message((1, key), (2, value))) for key, value in settings["env"].items()],
        *[(7, message((1, at), (2, source))) for at, source in settings["mounts"].items()],
        (11, "log"),
        (15, linux),
    )


def start(channel, image, pod):
    of_settings = [each for each in pod["containers"].values() if isinstance(each, dict)]
    pid = NODE if any(each["host_pid"] for each in of_settings) else CONTAINER
    namespaces = message((1, NODE), (2, pid))
    metadata = message((1, pod["name"]), (2, pod["uid"]), (3, pod["namespace"]))
    linux = message((1, pod["cgroup_parent"]), (2, message((1, namespaces))))
    logs = [(3, each["log_directory"]) for each in of_settings]
    config = message((1, metadata), *logs, (8, linux))
    sandbox = only_id(call(channel, "RuntimeService/RunPodSandbox", message((1, config))))
    for name, attempts in pod["containers"].items():
        # Several commands are those of a container that is restarted.
        is_restarted = isinstance(attempts, list) and isinstance(attempts[0], list)
        for attempt, settings in enumerate(attempts if is_restarted else [attempts]):
            if attempt > 0:
                # Process 1 of a PID namespace ignores the signal, and is killed after this time.
                stop = message((1, created), (2, STOP_SECONDS))
                call(channel, "RuntimeService/StopContainer", stop)
            metadata = message((1, name), (2, attempt))
            container = container_config(metadata, namespaces, image, settings)
            request = message((1, sandbox), (2, container), (3, config))
            created = only_id(call(channel, "RuntimeService/CreateContainer", request))
            call(channel, "RuntimeService/StartContainer", message((1, created)))
        if isinstance(settings, dict) and settings["ends"]:
            print(wait_for_exit(channel, created))


def remove_all(channel):
    while listed := call(channel, "RuntimeService/ListPodSandbox", b""):
        sandbox = message((1, decoded(decoded(listed)[1])[1]))
        call(channel, "RuntimeService/StopPodSandbox", sandbox)
        call(channel, "RuntimeService/RemovePodSandbox", sandbox)


def main():
    socket, image = sys.argv[1:]
    requests = json.load(sys.stdin)
    with grpc.insecure_channel("unix://" + socket) as channel:
        wait_for_image(channel, image)
        if requests.get("remove"):
            remove_all(channel)
        for pod in requests.get("start", []):
            start(channel, image, pod)


main()
