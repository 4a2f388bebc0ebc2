/* A library that is loaded at run time: argv[2] seconds (by default half of all), or until a line comes on standard input, in
 * main > run > before, then the program loads plugin.so from its own folder, prints "loaded", and spends the rest in main > run >
 * plugin_burn of plugin.so. */
#include <dlfcn.h>
#include <libgen.h>
#include <limits.h>

#include "lifetime.h"

static volatile unsigned long sink;

static void before(void) { sink += spin(1000000); }

static void (*load(void))(void) {
    char program[PATH_MAX] = "", plugin[PATH_MAX + 16];
    if (readlink("/proc/self/exe", program, sizeof program - 1) < 0)
        return NULL;
    snprintf(plugin, sizeof plugin, "%s/plugin.so", dirname(program));
    void *library = dlopen(plugin, RTLD_NOW);
    return library ? (void (*)(void))dlsym(library, "plugin_burn") : NULL;
}

static int has_line(void) {
    struct pollfd input = {.fd = 0, .events = POLLIN};
    return poll(&input, 1, 0) == 1 && (input.revents & POLLIN);
}

static int run(double seconds_before) {
    double loads_at_seconds = now_seconds() + seconds_before;
    while (goes_on() && now_seconds() < loads_at_seconds && !has_line())
        before();
    void (*plugin_burn)(void) = load();
    if (plugin_burn == NULL)
        return 1;
    printf("loaded\n");
    fflush(stdout);
    while (goes_on())
        plugin_burn();
    return 0;
}

int main(int argc, char **argv) {
    ready(argc, argv);
    return run(argc > 2 ? atof(argv[2]) : limit_seconds(argc, argv) / 2);
}
