// program PID FILE: samples a process until it has a sample, writes folded stacks to a file, and prints the symbol of its own `main`. It is
// compiled with AddressSanitizer, which reports what is not freed.
#define _POSIX_C_SOURCE 200809L
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "profiler.h"

static int failed(const char *what, profiler_error *error) {
    fprintf(stderr, "%s: %s\n", what, profiler_error_message(error));
    profiler_error_free(error);
    return 1;
}

static int sample(uint32_t pid, const char *path) {
    profiler_error *error = NULL;
    profiler_builder *builder = profiler_builder_new();
    profiler_builder_pid(builder, pid);
    profiler_builder_frequency_hz(builder, 499);
    profiler_session *session = profiler_builder_start(builder, &error);
    if (!session) return failed("start", error);
    profiler_profile *first = NULL;
    do {
        profiler_profile_free(first);
        first = profiler_session_take_profile(session, 1000000000, &error);
        if (!first) return failed("take", error);
    } while (profiler_profile_samples(first) == 0);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (!profiler_profile_write(first, "folded", fd, &error)) return failed("write", error);
    printf("samples %zu\n", profiler_profile_samples(first));
    if (profiler_profile_write(first, "no such format", fd, &error)) return 1;
    printf("%d %s\n", profiler_error_kind_of(error) == PROFILER_ERROR_KIND_INVALID_INPUT, profiler_error_message(error));
    profiler_error_free(error);
    profiler_profile_free(first);
    close(fd);
    profiler_profile *last = profiler_session_stop(session, &error);
    if (!last) return failed("stop", error);
    profiler_profile_free(last);
    return 0;
}

static int symbolize(uint64_t value) {
    profiler_error *error = NULL;
    profiler_symbolizer *symbolizer = profiler_builder_symbolizer(profiler_builder_new(), &error);
    if (!symbolizer) return failed("symbolizer", error);
    profiler_address address = {.value = value, .is_return = false};
    profiler_symbols *symbols = profiler_symbolizer_symbolize_process(symbolizer, getpid(), &address, 1, &error);
    if (!symbols) return failed("symbolize", error);
    for (size_t function = 0; function < profiler_symbols_functions(symbols, 0); function++)
        printf("%s in %s\n", profiler_symbols_name(symbols, 0, function), profiler_symbols_module(symbols, 0));
    if (profiler_symbols_name(symbols, 1, 0) || profiler_symbols_count(symbols) != 1) return 1;
    profiler_symbols_free(symbols);
    profiler_symbolizer_free(symbolizer);
    return 0;
}

static int sample_nothing(void) {
    profiler_error *error = NULL;
    if (profiler_builder_start(profiler_builder_new(), &error)) return 1;
    printf("%d %s\n", profiler_error_kind_of(error) == PROFILER_ERROR_KIND_INVALID_INPUT, profiler_error_message(error));
    profiler_error_free(error);
    // An error that is not wanted.
    if (profiler_builder_start(profiler_builder_new(), NULL)) return 1;
    profiler_builder_free(NULL);
    return 0;
}

int main(int count, char **arguments) {
    if (count != 3) return 2;
    return sample_nothing() || symbolize((uint64_t)main) || sample(strtoul(arguments[1], NULL, 10), arguments[2]);
}
