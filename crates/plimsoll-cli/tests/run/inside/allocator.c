#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
/* Callers do not contain copies of these. */
#define ALONE __attribute__((noinline, noclone))
unsigned long made, made_bytes, freed, freed_bytes;
static char *at, *end, *unused[64];
static char lock;
static void enter(void) { while (__atomic_test_and_set(&lock, __ATOMIC_ACQUIRE)) usleep(1); }
static void leave(void) { __atomic_clear(&lock, __ATOMIC_RELEASE); }
static size_t size_of(char *block) { return ((size_t *)block)[-2]; }
static void *place(size_t align, size_t size) {
    if (size > (size_t)1 << 40) { errno = ENOMEM; return 0; }
    if (align < 16) align = 16;
    size = (size + !size + 15) / 16 * 16;
    enter();
    char *block = 0;
    if (align == 16 && size / 16 < 64 && unused[size / 16]) {
        block = unused[size / 16];
        unused[size / 16] = *(char **)block;
    } else {
        if (!at || at + size + align + 16 > end) {
            size_t length = (size + align + (1 << 24)) / 4096 * 4096;
            at = mmap(0, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            end = at + length;
        }
        block = (char *)(((size_t)at + 16 + align - 1) / align * align);
        at = block + size;
        ((size_t *)block)[-2] = size;
        ((size_t *)block)[-1] = 0x6d61726b;
    }
    made++;
    made_bytes += size_of(block);
    leave();
    return block;
}
static void release(char *block) {
    if (!block) return;
    if (((size_t *)block)[-1] != 0x6d61726b) __builtin_trap();
    enter();
    size_t size = size_of(block);
    if (size / 16 < 64) { *(char **)block = unused[size / 16]; unused[size / 16] = block; }
    freed++;
    freed_bytes += size;
    leave();
}
#ifndef MALLOC
ALONE void *malloc(size_t size) { return place(16, size); }
#endif
#ifndef FREE
ALONE void free(void *block) { release(block); }
#endif
ALONE void *calloc(size_t count, size_t each) {
    size_t size;
    if (__builtin_mul_overflow(count, each, &size)) { errno = ENOMEM; return 0; }
    void *block = place(16, size);
    if (block) memset(block, 0, size);
    return block;
}
ALONE void *realloc(void *block, size_t size) {
    void *moved = place(16, size);
    if (!moved || !block) return moved;
    size_t old = size_of(block);
    memcpy(moved, block, old < size ? old : size);
    release(block);
    return moved;
}
ALONE int posix_memalign(void **to, size_t align, size_t size) {
    void *block = place(align, size);
    if (block) *to = block;
    return block ? 0 : ENOMEM;
}
ALONE void *aligned_alloc(size_t align, size_t size) { return place(align, size); }
ALONE void *memalign(size_t align, size_t size) { return place(align, size); }
ALONE void *valloc(size_t size) { return place(4096, size); }
ALONE size_t malloc_usable_size(void *block) {
    if (block && ((size_t *)block)[-1] != 0x6d61726b) __builtin_trap();
    return block ? size_of(block) : 0;
}
void say(void) {
    char text[200];
    int length = snprintf(text, sizeof text, "%lu %lu %lu %lu\n", made, made_bytes, freed, freed_bytes);
    write(1, text, length);
}
