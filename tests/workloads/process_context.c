/* A service that publishes its name in a process context of OpenTelemetry (OTEP 4719, "Publication Protocol") on the signal
 * SIGUSR1: main > run > round_of_work.
 *
 * Arguments: seconds, name of the service. */
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "lifetime.h"

struct header {
    char signature[8];
    uint32_t version, payload_size;
    uint64_t monotonic_published_at_ns, payload;
};

static volatile unsigned long sink;
static volatile sig_atomic_t is_requested;

/* A field of a protobuf message with a length of one byte. */
static size_t field(char *to, int number, const void *content, size_t length) {
    to[0] = number << 3 | 2;
    to[1] = length;
    memmove(to + 2, content, length);
    return length + 2;
}

/* ProcessContext { resource { attributes { key: "service.name", value { string_value } } } } */
static size_t encode(char *to, const char *name) {
    char value[128], attribute[128], resource[128];
    size_t length = field(value, 1, name, strlen(name));
    size_t key_length = field(attribute, 1, "service.name", strlen("service.name"));
    size_t attribute_length = key_length + field(attribute + key_length, 2, value, length);
    size_t resource_length = field(resource, 1, attribute, attribute_length);
    return field(to, 1, resource, resource_length);
}

static int publish(const char *name) {
    char *payload = malloc(128);
    int file = memfd_create("OTEL_CTX", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (payload == NULL || file < 0 || ftruncate(file, sizeof(struct header)) != 0)
        return 1;
    struct header *header =
        mmap(NULL, sizeof *header, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    close(file);
    if (header == MAP_FAILED || madvise(header, sizeof *header, MADV_DONTFORK) != 0)
        return 1;
    memcpy(header->signature, "OTEL_CTX", sizeof header->signature);
    header->version = 2;
    header->payload_size = encode(payload, name);
    header->payload = (uintptr_t)payload;
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    ((volatile struct header *)header)->monotonic_published_at_ns = 1 + now_seconds() * 1e9;
    return 0;
}

static void round_of_work(void) { sink += spin(100000); }

static void request(int signal_number) { is_requested = signal_number; }

static int run(const char *name) {
    while (goes_on()) {
        round_of_work();
        if (is_requested) {
            is_requested = 0;
            if (publish(name) != 0)
                return 1;
        }
    }
    return 0;
}

int main(int argc, char **argv) {
    if (argc != 3)
        return 1;
    signal(SIGUSR1, request);
    ready(argc, argv);
    return run(argv[2]);
}
