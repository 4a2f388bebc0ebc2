/* Distinct libraries that a process loads and unloads: main > plugin_burn > plugin_leaf.
 *
 * Arguments: seconds, libraries a minute, a folder. Each is a copy of plugin.so, from the folder of this program, with a
 * build id of its own, and is removed when it has been unloaded. Prints "turns N" at the end, the number of libraries. */
#include <dlfcn.h>
#include <libgen.h>
#include <limits.h>

#include "build_id.h"
#include "pace.h"

static int load_and_run(const char *library) {
    void *handle = dlopen(library, RTLD_NOW);
    void (*plugin_burn)(void) = handle ? (void (*)(void))dlsym(handle, "plugin_burn") : NULL;
    if (plugin_burn == NULL)
        return 1;
    for (int call = 0; call < 3; call++)
        plugin_burn();
    return dlclose(handle);
}

int main(int argc, char **argv) {
    char program[PATH_MAX] = "", plugin[PATH_MAX + 16], copy[PATH_MAX];
    if (argc != 4 || readlink("/proc/self/exe", program, sizeof program - 1) < 0)
        return 1;
    snprintf(plugin, sizeof plugin, "%s/plugin.so", dirname(program));
    unsigned long turns = 0;
    ready(argc, argv);
    while (next_turn(atof(argv[2]), &turns)) {
        snprintf(copy, sizeof copy, "%s/library-%lu.so", argv[3], turns);
        if (copy_with_build_id(plugin, copy, turns) != 0 || load_and_run(copy) != 0 || unlink(copy) != 0)
            return 1;
    }
    print_turns(turns);
    return 0;
}
