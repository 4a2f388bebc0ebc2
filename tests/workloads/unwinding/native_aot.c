// Calls a NativeAOT library, whose path is argv[2]: the package fixedwidthparser (docs/design/unwinding.md):
// main > run > parse > fw_read_memory > ..., and main > run > parse_stream > fw_reader_next > ... > feed.
#include <dlfcn.h>
#include <stdint.h>
#include <string.h>

#include "../lifetime.h"

enum { LINES = 2000, LINE_BYTES = 33, COLUMNS = 3, STRING = 0, INTEGER = 1, DECIMAL = 3 };

// Arguments of the library: `struct_size` is the size of each, and 0 is the default of what follows.
struct column {
    int32_t struct_size;
    const char *name;
    int32_t name_bytes, start, length, type, is_nullable, scale;
    const char *format;
    int32_t format_bytes, trim_character, trim_mode, alignment, padding, overflow, dictionary;
};

struct read_options {
    int32_t struct_size;
    int64_t header_lines;
    int32_t skip_invalid, threads, encoding, max_line_bytes, skip_byte_order_mark;
};

struct reader_options {
    int32_t struct_size;
    struct read_options read;
    int64_t batch_lines;
};

struct stream {
    int32_t struct_size;
    void *data;
    int64_t (*read)(void *data, void *buffer, int64_t bytes);
    void (*release)(void *data);
};

struct table {
    int32_t columns;
    int64_t rows;
    void *values;
};

struct read_result {
    int32_t struct_size;
    int64_t read, skipped;
};

static int (*fw_read_memory)(const char *, int64_t, void *, struct read_options *, struct table *, struct read_result *);
static int (*fw_reader_open_stream)(struct stream *, void *, struct reader_options *, void **);
static int (*fw_reader_next)(void *, struct table *);
static void (*fw_reader_close)(void *);
static void (*fw_free_table)(struct table *);

static char text[LINES * LINE_BYTES + 1];
static void *layout;
static volatile unsigned long sink;

static void fail(const char *step, int status) {
    fprintf(stderr, "%s: %d\n", step, status);
    exit(1);
}

static void parse(void) {
    struct read_options options = {.struct_size = sizeof options, .threads = 1};
    struct read_result result = {.struct_size = sizeof result};
    struct table table = {0};
    int status = fw_read_memory(text, sizeof text - 1, layout, &options, &table, &result);
    if (status != 0 || table.rows != LINES)
        fail("fw_read_memory", status);
    fw_free_table(&table);
}

static int64_t offset;

static int64_t feed(void *data, void *buffer, int64_t bytes) {
    int64_t rest = sizeof text - 1 - offset;
    int64_t given = bytes < 512 ? bytes : 512;
    given = given < rest ? given : rest;
    memcpy(buffer, text + offset, given);
    offset += given;
    sink += spin(varied(2000)) + (data != NULL);
    return given;
}

static void release(void *data) { sink += data != NULL; }

static void parse_stream(void) {
    struct reader_options options = {.struct_size = sizeof options, .batch_lines = LINES / 4};
    options.read = (struct read_options){.struct_size = sizeof options.read, .threads = 1};
    struct stream stream = {.struct_size = sizeof stream, .read = feed, .release = release};
    void *reader;
    offset = 0;
    int status = fw_reader_open_stream(&stream, layout, &options, &reader);
    if (status != 0)
        fail("fw_reader_open_stream", status);
    struct table table;
    do {
        table = (struct table){0};
        status = fw_reader_next(reader, &table);
        if (status == 0)
            fw_free_table(&table);
    } while (status == 0);
    if (status != -1)
        fail("fw_reader_next", status);
    fw_reader_close(reader);
}

static void run(void) {
    while (goes_on()) {
        parse();
        parse_stream();
    }
}

static void *function(void *library, const char *name) {
    void *address = dlsym(library, name);
    if (address == NULL)
        fail(name, 0);
    return address;
}

int main(int argc, char **argv) {
    void *library = argc > 2 ? dlopen(argv[2], RTLD_NOW) : NULL;
    if (library == NULL)
        fail(argc > 2 ? dlerror() : "the path of the library is missing", 0);
    int (*fw_layout_create)(struct column *, int32_t, void *, void **) = function(library, "fw_layout_create");
    fw_read_memory = function(library, "fw_read_memory");
    fw_reader_open_stream = function(library, "fw_reader_open_stream");
    fw_reader_next = function(library, "fw_reader_next");
    fw_reader_close = function(library, "fw_reader_close");
    fw_free_table = function(library, "fw_free_table");
    struct column columns[COLUMNS] = {
        {.name = "name", .start = 0, .length = 12, .type = STRING},
        {.name = "number", .start = 12, .length = 8, .type = INTEGER},
        {.name = "amount", .start = 20, .length = 12, .type = DECIMAL, .scale = 2},
    };
    for (int column = 0; column < COLUMNS; column++) {
        columns[column].struct_size = sizeof columns[column];
        columns[column].name_bytes = strlen(columns[column].name);
    }
    int status = fw_layout_create(columns, COLUMNS, NULL, &layout);
    if (status != 0)
        fail("fw_layout_create", status);
    for (int line = 0; line < LINES; line++)
        sprintf(text + line * LINE_BYTES, "name%-8d%8d%12.2f\n", line, line * 7, line * 1.25);
    ready(argc, argv);
    run();
    return 0;
}
