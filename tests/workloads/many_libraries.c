/* Functions of many libraries in turns: main > run > plugin_burn of 0.so, 1.so and so on in the folder argv[2]. */
#include <dlfcn.h>
#include <limits.h>

#include "lifetime.h"

enum { MAX_LIBRARIES = 64 };

typedef void function(void);

static function *load(const char *folder, unsigned number) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%u.so", folder, number);
    void *library = dlopen(path, RTLD_NOW);
    return library ? (function *)dlsym(library, "plugin_burn") : NULL;
}

static int run(const char *folder) {
    function *functions[MAX_LIBRARIES];
    unsigned count = 0;
    while (count < MAX_LIBRARIES && (functions[count] = load(folder, count)) != NULL)
        count++;
    if (count == 0)
        return 1;
    for (unsigned turn = 0; goes_on(); turn++)
        functions[turn % count]();
    return 0;
}

int main(int argc, char **argv) {
    ready(argc, argv);
    return run(argc > 2 ? argv[2] : ".");
}
