// Allocates known numbers of blocks of known sizes, by function. Frees every second block.
// Arguments: the numbers of small, medium and large blocks; then `kill`, to end by SIGKILL; the name
// of an `exec` function, to execute itself by it; or `last`, in a program that was executed so.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

// More arguments than any machine passes in registers.
#define ALL self, "20", "30", "40", "last", "a", "b", "c", "d", "e"
#define END ((char *)0)

static int execute(const char *by, char *self) {
    char *all[] = {ALL, END}, *other[] = {"OTHER=1", END};
    int file = open(self, O_RDONLY);
    if (!strcmp(by, "execl")) execl(self, ALL, END);
    if (!strcmp(by, "execlp")) execlp(self, ALL, END);
    if (!strcmp(by, "execle")) execle(self, ALL, END, other);
    if (!strcmp(by, "execv")) execv(self, all);
    if (!strcmp(by, "execvp")) execvp(self, all);
    if (!strcmp(by, "execve")) execve(self, all, other);
    if (!strcmp(by, "execvpe")) execvpe(self, all, other);
    if (!strcmp(by, "fexecve")) fexecve(file, all, other);
    if (!strcmp(by, "execveat")) execveat(file, "", all, other, AT_EMPTY_PATH);
    // A name of no function: the execution fails.
    return execl("/nowhere", ALL, END) == -1 ? 5 : 6;
}

int main(int arguments, char **argument) {
    if (arguments < 4) return 2;
    small(atoi(argument[1]));
    medium(atoi(argument[2]));
    pthread_t thread;
    if (pthread_create(&thread, 0, large, (void *)(size_t)atoi(argument[3]))) return 3;
    pthread_join(thread, 0);
    if (arguments < 5) return 0;
    if (!strcmp(argument[4], "kill")) raise(SIGKILL);
    if (strcmp(argument[4], "last")) return execute(argument[4], argument[0]);
    if (arguments != 10 || strcmp(argument[9], "e")) return 4;
    return 0;
}
