/* A function in machine code, as a JIT compiler makes it. */
#pragma once

/* push a frame; spin `steps` times; pop it; return. `steps` is the first argument. */
#if defined __x86_64__
static const unsigned char CODE[] = {0x55, 0x48, 0x89, 0xe5, 0x48, 0xff, 0xcf, 0x75, 0xfb, 0x5d, 0xc3};
#elif defined __aarch64__
static const unsigned CODE[] = {0xa9bf7bfd, 0x910003fd, 0xf1000400, 0x54ffffe1, 0xa8c17bfd, 0xd65f03c0};
#endif

typedef void function(unsigned long steps);
