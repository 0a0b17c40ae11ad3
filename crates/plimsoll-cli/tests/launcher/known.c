// Allocates known numbers of blocks of known sizes, by function. Frees every second block.
// Arguments: the numbers of small, medium and large blocks; then `kill`, to end by SIGKILL.
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define SITE __attribute__((noinline))

static void *kept[100000];

// Not a tail call of `malloc`: the function stays on the stack.
static void keep(void **at, void *block) {
    *at = block;
    if (!block) abort();
}

static void free_half(int count) {
    for (int i = 0; i < count; i += 2) free(kept[i]);
}

SITE void small(int count) {
    for (int i = 0; i < count; i++) keep(kept + i, malloc(200));
    free_half(count);
}

SITE void medium(int count) {
    for (int i = 0; i < count; i++) keep(kept + i, calloc(1, 1000));
    free_half(count);
}

SITE void *large(void *count) {
    for (int i = 0; i < (int)(size_t)count; i++) keep(kept + i, malloc(20000));
    free_half((int)(size_t)count);
    return 0;
}

int main(int arguments, char **argument) {
    if (arguments < 4) return 2;
    small(atoi(argument[1]));
    medium(atoi(argument[2]));
    pthread_t thread;
    if (pthread_create(&thread, 0, large, (void *)(size_t)atoi(argument[3]))) return 3;
    pthread_join(thread, 0);
    if (arguments > 4 && !strcmp(argument[4], "kill")) raise(SIGKILL);
    return 0;
}
