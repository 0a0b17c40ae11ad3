#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static volatile int waiter;

static void until_asleep(void) {
    for (;;) {
        char path[64], state = 0;
        snprintf(path, sizeof path, "/proc/self/task/%d/stat", waiter);
        FILE *file = waiter ? fopen(path, "r") : NULL;
        int found = file && fscanf(file, "%*d (%*[^)]) %c", &state) == 1;
        if (file)
            fclose(file);
        if (found && state == 'S')
            return;
        sched_yield();
    }
}

static void *waits_for_the_mutex(void *unused) {
    waiter = gettid();
    pthread_mutex_lock(&mutex);
    pthread_mutex_unlock(&mutex);
    return unused;
}

static void unlock(void *unused) {
    (void)unused;
    pthread_mutex_unlock(&mutex);
}

static void *waits_for_the_condition(void *unused) {
    pthread_cleanup_push(unlock, NULL);
    pthread_mutex_lock(&mutex);
    waiter = gettid();
    for (;;)
        pthread_cond_wait(&condition, &mutex);
    pthread_cleanup_pop(0);
    return unused;
}

/* Makes one thread wait for a mutex, and cancels another that waits for a condition. Returns 0 on
   success, or the number of the failed step. */
int contend_and_cancel(void) {
    pthread_t thread;
    void *result = NULL;
    pthread_mutex_lock(&mutex);
    if (pthread_create(&thread, NULL, waits_for_the_mutex, NULL))
        return 1;
    until_asleep();
    pthread_mutex_unlock(&mutex);
    if (pthread_join(thread, &result) || result)
        return 2;
    waiter = 0;
    if (pthread_create(&thread, NULL, waits_for_the_condition, NULL))
        return 3;
    until_asleep();
    if (pthread_cancel(thread) || pthread_join(thread, &result) || result != PTHREAD_CANCELED)
        return 4;
    /* The thread's cleanup has unlocked it. */
    return pthread_mutex_trylock(&mutex) ? 5 : 0;
}

#ifdef HOST
int main(void) { return contend_and_cancel(); }
#endif
