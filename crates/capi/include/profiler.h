/* The C interface of profiler. Generated from crates/capi/src by the test `the_header_is_that_of_the_functions`. */

#ifndef PROFILER_H
#define PROFILER_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

// The kind of an error, to branch on.
typedef enum profiler_error_kind {
  // An invalid setting or argument.
  PROFILER_ERROR_KIND_INVALID_INPUT,
  // The process to sample does not exist.
  PROFILER_ERROR_KIND_NO_SUCH_TARGET,
  // A file that the caller named does not exist.
  PROFILER_ERROR_KIND_NO_SUCH_FILE,
  // A privilege is missing.
  PROFILER_ERROR_KIND_PERMISSION_DENIED,
  // The kernel, the machine or this build lacks a capability that is needed.
  PROFILER_ERROR_KIND_UNSUPPORTED,
  // A file that is damaged or of another format.
  PROFILER_ERROR_KIND_INVALID_DATA,
  // Any other error of the operating system.
  PROFILER_ERROR_KIND_IO,
} profiler_error_kind;

// Settings of a session or a symbolizer. [`profiler_builder_start`] and [`profiler_builder_symbolizer`] consume it.
typedef struct profiler_builder profiler_builder;

// What failed. [`profiler_error_free`] frees it.
typedef struct profiler_error profiler_error;

// A profile. [`profiler_profile_free`] frees it.
typedef struct profiler_profile profiler_profile;

// A session that samples. [`profiler_session_stop`] consumes it.
typedef struct profiler_session profiler_session;

// Finds the functions at addresses. It keeps what it has read.
typedef struct profiler_symbolizer profiler_symbolizer;

// The symbols of some addresses, in their order. Each has functions, innermost first: each but the last is inlined into its
// successor.
typedef struct profiler_symbols profiler_symbols;

// An address to symbolize.
typedef struct profiler_address {
  // The address, or the offset in a file.
  uint64_t value;
  // Whether it is a return address, which is behind its call instruction: that of any frame of a stack but the innermost.
  bool is_return;
} profiler_address;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// A builder with default settings: CPU samples at 99 Hz, of no target.
struct profiler_builder *profiler_builder_new(void);

// Frees a builder that was not consumed, or does nothing with null.
void profiler_builder_free(struct profiler_builder *builder);

// Samples a process, with all its threads.
void profiler_builder_pid(struct profiler_builder *builder, uint32_t pid);

// Samples all processes of the machine.
void profiler_builder_everything(struct profiler_builder *builder);

// Samples the children of the target as well.
void profiler_builder_children(struct profiler_builder *builder, bool wanted);

// The frequency of CPU samples, in hertz.
void profiler_builder_frequency_hz(struct profiler_builder *builder, uint64_t frequency_hz);

// Samples all threads at this frequency, in hertz, whether they run or wait.
void profiler_builder_wall_clock_hz(struct profiler_builder *builder, uint64_t frequency_hz);

// Samples each wait of at least this many nanoseconds.
void profiler_builder_off_cpu(struct profiler_builder *builder, uint64_t min_ns);

// Shows inlined functions as frames, where there is debug information.
void profiler_builder_inlines(struct profiler_builder *builder, bool wanted);

// Finds source files and lines, where there is debug information.
void profiler_builder_lines(struct profiler_builder *builder, bool wanted);

// Starts to sample, and consumes the builder; null after an error.
struct profiler_session *profiler_builder_start(struct profiler_builder *builder, struct profiler_error **error);

// A symbolizer with the settings of names, which needs no target. Consumes the builder; null after an error.
struct profiler_symbolizer *profiler_builder_symbolizer(struct profiler_builder *builder, struct profiler_error **error);

// The kind of an error.
enum profiler_error_kind profiler_error_kind_of(const struct profiler_error *error);

// What failed, and what helps. The text lives as long as the error.
const char *profiler_error_message(const struct profiler_error *error);

// Frees an error, or does nothing with null.
void profiler_error_free(struct profiler_error *error);

// The number of samples.
size_t profiler_profile_samples(const struct profiler_profile *profile);

// Writes a profile to a file descriptor, which stays open. The format is one by its name on the command line: `folded`, `svg`,
// `html`, `pprof`, `profile` (a recording).
// `format` ends with a null byte, and `fd` is open.
bool profiler_profile_write(const struct profiler_profile *profile,
                            const char *format,
                            int32_t fd,
                            struct profiler_error **error);

// Frees a profile, or does nothing with null.
void profiler_profile_free(struct profiler_profile *profile);

// Waits, and returns the profile since the start or the last profile; sampling goes on. Null after an error.
struct profiler_profile *profiler_session_take_profile(struct profiler_session *session,
                                                       uint64_t wait_ns,
                                                       struct profiler_error **error);

// Whether the target has exited. Waits for it for `wait_ns` nanoseconds at most.
bool profiler_session_has_ended(struct profiler_session *session, uint64_t wait_ns);

// Stops sampling and returns the profile since the start or the last profile. Consumes the session; null after an error.
struct profiler_profile *profiler_session_stop(struct profiler_session *session, struct profiler_error **error);

// Ends a session without a profile, or does nothing with null.
void profiler_session_free(struct profiler_session *session);

// The symbols at addresses of a process; null after an error.
// There are `count` addresses.
struct profiler_symbols *profiler_symbolizer_symbolize_process(struct profiler_symbolizer *symbolizer,
                                                               uint32_t pid,
                                                               const struct profiler_address *addresses,
                                                               size_t count,
                                                               struct profiler_error **error);

// The symbols at offsets in a file; null after an error.
// `path` ends with a null byte, and there are `count` offsets.
struct profiler_symbols *profiler_symbolizer_symbolize_file(struct profiler_symbolizer *symbolizer,
                                                            const char *path,
                                                            const struct profiler_address *offsets,
                                                            size_t count,
                                                            struct profiler_error **error);

// The symbols at addresses of the running kernel.
// There are `count` addresses.
struct profiler_symbols *profiler_symbolizer_symbolize_kernel(struct profiler_symbolizer *symbolizer,
                                                              const struct profiler_address *addresses,
                                                              size_t count);

// Frees a symbolizer, or does nothing with null.
void profiler_symbolizer_free(struct profiler_symbolizer *symbolizer);

// The number of symbols, one for each address.
size_t profiler_symbols_count(const struct profiler_symbols *symbols);

// The number of functions at an address: at least 1, and more where there are inlined ones. 0 for an index that does not exist.
size_t profiler_symbols_functions(const struct profiler_symbols *symbols, size_t symbol);

// The name of a function, innermost first; the address in brackets where there is no symbol. It lives as long as the symbols. Null
// for an index that does not exist.
const char *profiler_symbols_name(const struct profiler_symbols *symbols,
                                  size_t symbol,
                                  size_t function);

// The source file of a function; null if it is not known. It lives as long as the symbols.
const char *profiler_symbols_file(const struct profiler_symbols *symbols, size_t symbol, size_t function);

// The line in the source file of a function; 0 if it is not known.
uint32_t profiler_symbols_line(const struct profiler_symbols *symbols, size_t symbol, size_t function);

// The path of the file that the code is from; null for JIT code and unmapped addresses. It lives as long as the symbols.
const char *profiler_symbols_module(const struct profiler_symbols *symbols, size_t symbol);

// Frees symbols, or does nothing with null.
void profiler_symbols_free(struct profiler_symbols *symbols);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* PROFILER_H */
