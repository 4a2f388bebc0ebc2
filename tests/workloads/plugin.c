/* The library that dlopen.c and replugs.c load: plugin_burn > plugin_leaf. Compilers rename the functions and set the size
 * of the frame of plugin_burn. */
#include "lifetime.h"

#ifndef FRAME_BYTES
#define FRAME_BYTES 16
#endif

static volatile unsigned long sink;

static void plugin_leaf(void) { sink += spin(1000000); }

void plugin_burn(void) {
    volatile char frame[FRAME_BYTES];
    frame[0] = frame[FRAME_BYTES - 1] = 1;
    plugin_leaf();
    sink += frame[0];
}
