/* The library that dlopen.c loads: plugin_burn > plugin_leaf. */
#include "lifetime.h"

static volatile unsigned long sink;

static void plugin_leaf(void) { sink += spin(1000000); }

void plugin_burn(void) {
    plugin_leaf();
    sink++;
}
