#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Prevents a tail call, which would leave no frame. */
#define NOT_THE_LAST __asm__ volatile("")

static struct timespec after(clockid_t clock, long milliseconds) {
    struct timespec time;
    clock_gettime(clock, &time);
    time.tv_sec += milliseconds / 1000;
    time.tv_nsec += milliseconds % 1000 * 1000000;
    if (time.tv_nsec >= 1000000000) {
        time.tv_sec++;
        time.tv_nsec -= 1000000000;
    }
    return time;
}

#define LONG 600000

/* The operations on a lock, each in a separate function. */
#define ONE(name, type, call)                                                                      \
    __attribute__((noinline)) int name(type *lock) {                                               \
        int result = call;                                                                         \
        NOT_THE_LAST;                                                                              \
        return result;                                                                             \
    }

/* Takes a lock and releases it. */
#define BOTH(name, type, call, release)                                                            \
    __attribute__((noinline)) int name(type *lock) {                                               \
        struct timespec realtime = after(CLOCK_REALTIME, LONG);                                    \
        struct timespec monotonic = after(CLOCK_MONOTONIC, LONG);                                  \
        int result = call;                                                                         \
        (void)realtime, (void)monotonic;                                                           \
        release(lock);                                                                             \
        NOT_THE_LAST;                                                                              \
        return result;                                                                             \
    }

ONE(c_locks, pthread_mutex_t, pthread_mutex_lock(lock))
ONE(c_tries, pthread_mutex_t, pthread_mutex_trylock(lock))
ONE(c_unlocks, pthread_mutex_t, pthread_mutex_unlock(lock))
ONE(c_unlocks_inner, pthread_mutex_t, pthread_mutex_unlock(lock))
ONE(c_unlocks_wrongly, pthread_mutex_t, pthread_mutex_unlock(lock))
ONE(c_unlocks_in_vain, pthread_mutex_t, pthread_mutex_unlock(lock))
ONE(c_unlocks_recursive, pthread_mutex_t, pthread_mutex_unlock(lock))
ONE(c_unlocks_checking, pthread_mutex_t, pthread_mutex_unlock(lock))
ONE(c_unlocks_adaptive, pthread_mutex_t, pthread_mutex_unlock(lock))
ONE(c_unlocks_inheriting, pthread_mutex_t, pthread_mutex_unlock(lock))
ONE(c_unlocks_robust, pthread_mutex_t, pthread_mutex_unlock(lock))
ONE(c_unlocks_timed, pthread_mutex_t, pthread_mutex_unlock(lock))
ONE(c_unlocks_clocked, pthread_mutex_t, pthread_mutex_unlock(lock))
ONE(c_unlocks_plainly, pthread_mutex_t, pthread_mutex_unlock(lock))
BOTH(c_waits, pthread_mutex_t, pthread_mutex_lock(lock), pthread_mutex_unlock)
BOTH(c_waits_plainly, pthread_mutex_t, pthread_mutex_lock(lock), pthread_mutex_unlock)
BOTH(c_waits_recursive, pthread_mutex_t, pthread_mutex_lock(lock), pthread_mutex_unlock)
BOTH(c_waits_checking, pthread_mutex_t, pthread_mutex_lock(lock), pthread_mutex_unlock)
BOTH(c_waits_adaptive, pthread_mutex_t, pthread_mutex_lock(lock), pthread_mutex_unlock)
BOTH(c_waits_inheriting, pthread_mutex_t, pthread_mutex_lock(lock), pthread_mutex_unlock)
BOTH(c_waits_robust, pthread_mutex_t, pthread_mutex_lock(lock), pthread_mutex_unlock)
BOTH(c_waits_timed, pthread_mutex_t, pthread_mutex_timedlock(lock, &realtime),
     pthread_mutex_unlock)
BOTH(c_waits_clocked, pthread_mutex_t,
     pthread_mutex_clocklock(lock, CLOCK_MONOTONIC, &monotonic), pthread_mutex_unlock)

ONE(c_reads, pthread_rwlock_t, pthread_rwlock_rdlock(lock))
ONE(c_writes, pthread_rwlock_t, pthread_rwlock_wrlock(lock))
ONE(c_stops_writing, pthread_rwlock_t, pthread_rwlock_unlock(lock))
ONE(c_stops_writing_for_writers, pthread_rwlock_t, pthread_rwlock_unlock(lock))
ONE(c_stops_reading, pthread_rwlock_t, pthread_rwlock_unlock(lock))
ONE(c_stops_writing_timed, pthread_rwlock_t, pthread_rwlock_unlock(lock))
ONE(c_stops_reading_timed, pthread_rwlock_t, pthread_rwlock_unlock(lock))
ONE(c_stops_writing_clocked, pthread_rwlock_t, pthread_rwlock_unlock(lock))
ONE(c_stops_reading_clocked, pthread_rwlock_t, pthread_rwlock_unlock(lock))
BOTH(c_waits_to_read, pthread_rwlock_t, pthread_rwlock_rdlock(lock), pthread_rwlock_unlock)
BOTH(c_waits_to_write_after, pthread_rwlock_t, pthread_rwlock_wrlock(lock), pthread_rwlock_unlock)
BOTH(c_waits_to_write, pthread_rwlock_t, pthread_rwlock_wrlock(lock), pthread_rwlock_unlock)
BOTH(c_waits_to_read_timed, pthread_rwlock_t, pthread_rwlock_timedrdlock(lock, &realtime),
     pthread_rwlock_unlock)
BOTH(c_waits_to_write_timed, pthread_rwlock_t, pthread_rwlock_timedwrlock(lock, &realtime),
     pthread_rwlock_unlock)
BOTH(c_waits_to_read_clocked, pthread_rwlock_t,
     pthread_rwlock_clockrdlock(lock, CLOCK_MONOTONIC, &monotonic), pthread_rwlock_unlock)
BOTH(c_waits_to_write_clocked, pthread_rwlock_t,
     pthread_rwlock_clockwrlock(lock, CLOCK_MONOTONIC, &monotonic), pthread_rwlock_unlock)

/* Locks without a time limit and returns the result. */
__attribute__((noinline)) int c_waits_for_the_dead(pthread_mutex_t *lock) {
    int result = pthread_mutex_lock(lock);
    NOT_THE_LAST;
    return result;
}

__attribute__((noinline)) int c_waits_in_vain(pthread_mutex_t *lock, long milliseconds) {
    struct timespec time = after(CLOCK_REALTIME, milliseconds);
    int result = pthread_mutex_timedlock(lock, &time);
    NOT_THE_LAST;
    return result;
}

/* Kinds of mutexes. */
enum { RECURSIVE = 1, ERRORCHECK = 2, ADAPTIVE = 3, ROBUST = 16, INHERIT = 32, SHARED = 128 };

int c_init(pthread_mutex_t *lock, int kind) {
    pthread_mutexattr_t attributes;
    int types[] = {PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_RECURSIVE, PTHREAD_MUTEX_ERRORCHECK,
                   PTHREAD_MUTEX_ADAPTIVE_NP};
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, types[kind & 3]);
    if (kind & ROBUST)
        pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    if (kind & INHERIT)
        pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT);
    if (kind & SHARED)
        pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    return pthread_mutex_init(lock, &attributes);
}

/* A condition with its flag. */
struct news {
    pthread_mutex_t mutex;
    pthread_cond_t condition;
    int is_there;
};

int c_init_news(struct news *news) {
    pthread_mutex_init(&news->mutex, NULL);
    pthread_cond_init(&news->condition, NULL);
    news->is_there = 0;
    return 0;
}

#define WAIT_FOR_NEWS(name, call)                                                                  \
    __attribute__((noinline)) int name(struct news *news) {                                        \
        struct timespec realtime = after(CLOCK_REALTIME, LONG);                                    \
        struct timespec monotonic = after(CLOCK_MONOTONIC, LONG);                                  \
        int result = 0;                                                                            \
        (void)realtime, (void)monotonic;                                                           \
        pthread_mutex_lock(&news->mutex);                                                          \
        while (!news->is_there && result == 0)                                                     \
            result = call;                                                                         \
        pthread_mutex_unlock(&news->mutex);                                                        \
        NOT_THE_LAST;                                                                              \
        return result;                                                                             \
    }

WAIT_FOR_NEWS(c_waits_for_news, pthread_cond_wait(&news->condition, &news->mutex))
WAIT_FOR_NEWS(c_waits_for_news_timed,
              pthread_cond_timedwait(&news->condition, &news->mutex, &realtime))
WAIT_FOR_NEWS(c_waits_for_news_clocked,
              pthread_cond_clockwait(&news->condition, &news->mutex, CLOCK_MONOTONIC, &monotonic))
WAIT_FOR_NEWS(c_waits_to_be_signalled, pthread_cond_wait(&news->condition, &news->mutex))

__attribute__((noinline)) int c_brings_news(struct news *news) {
    pthread_mutex_lock(&news->mutex);
    news->is_there = 1;
    pthread_cond_broadcast(&news->condition);
    pthread_mutex_unlock(&news->mutex);
    NOT_THE_LAST;
    return 0;
}

__attribute__((noinline)) int c_signals_each(struct news *news) {
    pthread_mutex_lock(&news->mutex);
    news->is_there = 1;
    pthread_mutex_unlock(&news->mutex);
    for (int each = 0; each < 4; each++)
        pthread_cond_signal(&news->condition);
    NOT_THE_LAST;
    return 0;
}

/* Releases the mutex by waiting for a condition that is never signalled. */
__attribute__((noinline)) int c_gives_up_by_waiting(struct news *news) {
    struct timespec time = after(CLOCK_REALTIME, 1);
    int result = pthread_cond_timedwait(&news->condition, &news->mutex, &time);
    NOT_THE_LAST;
    return result;
}

/* The state of a thread that waits until it is cancelled. */
struct cancelled {
    struct news news;
    pthread_mutex_t held;
    volatile int id;
    int cleaned_up;
    int asynchronously;
};

static void clean_up(void *argument) {
    struct cancelled *cancelled = argument;
    cancelled->cleaned_up++;
    if (!cancelled->asynchronously)
        pthread_mutex_unlock(&cancelled->news.mutex);
}

__attribute__((noinline)) void c_waits_to_be_cancelled(struct cancelled *cancelled) {
    pthread_cleanup_push(clean_up, cancelled);
    pthread_mutex_lock(&cancelled->news.mutex);
    for (;;)
        pthread_cond_wait(&cancelled->news.condition, &cancelled->news.mutex);
    pthread_cleanup_pop(0);
}

__attribute__((noinline)) void c_waits_to_be_cancelled_at_any_time(struct cancelled *cancelled) {
    pthread_cleanup_push(clean_up, cancelled);
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
    pthread_mutex_lock(&cancelled->held);
    pthread_cleanup_pop(0);
}

static void *cancelled_thread(void *argument) {
    struct cancelled *cancelled = argument;
    cancelled->id = gettid();
    if (cancelled->asynchronously)
        c_waits_to_be_cancelled_at_any_time(cancelled);
    else
        c_waits_to_be_cancelled(cancelled);
    return NULL;
}

/* Returns 0 on success. `until_asleep` returns once the thread sleeps. */
int c_cancels(void (*until_asleep)(int), int asynchronously) {
    struct cancelled *cancelled = calloc(1, sizeof *cancelled);
    pthread_t thread;
    void *result = NULL;
    c_init_news(&cancelled->news);
    pthread_mutex_init(&cancelled->held, NULL);
    pthread_mutex_lock(&cancelled->held);
    cancelled->asynchronously = asynchronously;
    if (pthread_create(&thread, NULL, cancelled_thread, cancelled))
        return 1;
    while (!cancelled->id)
        sched_yield();
    until_asleep(cancelled->id);
    if (pthread_cancel(thread) || pthread_join(thread, &result))
        return 2;
    if (result != PTHREAD_CANCELED || cancelled->cleaned_up != 1)
        return 3;
    /* The mutex is free. */
    if (pthread_mutex_trylock(&cancelled->news.mutex))
        return 4;
    pthread_mutex_unlock(&cancelled->news.mutex);
    pthread_mutex_unlock(&cancelled->held);
    if (pthread_cond_destroy(&cancelled->news.condition))
        return 5;
    free(cancelled);
    return 0;
}

/* Forks a child that holds the shared lock until it receives a byte from the pipe. */
int c_child_holds(pthread_mutex_t *shared, int *ready, int *resumes) {
    int here[2], there[2];
    char byte = 0;
    if (pipe(here) || pipe(there))
        return -1;
    pid_t child = fork();
    if (child == 0) {
        if (pthread_mutex_lock(shared) || write(here[1], &byte, 1) != 1)
            _exit(1);
        if (read(there[0], &byte, 1) != 1 || pthread_mutex_unlock(shared))
            _exit(2);
        _exit(0);
    }
    close(here[1]);
    close(there[0]);
    *ready = here[0];
    *resumes = there[1];
    return child;
}

/* Forks a child that uses private locks and one for which other threads contend. */
int c_forks(pthread_mutex_t *contended) {
    pthread_mutex_lock(contended);
    pid_t child = fork();
    if (child == 0) {
        struct news news;
        struct timespec time = after(CLOCK_REALTIME, 1);
        c_init_news(&news);
        int right = pthread_mutex_unlock(contended) == 0 && pthread_mutex_lock(contended) == 0 &&
                    pthread_mutex_unlock(contended) == 0 && pthread_mutex_lock(&news.mutex) == 0 &&
                    pthread_cond_timedwait(&news.condition, &news.mutex, &time) == ETIMEDOUT &&
                    pthread_mutex_unlock(&news.mutex) == 0;
        _exit(right ? 0 : 1);
    }
    pthread_mutex_unlock(contended);
    int status = -1;
    if (child < 0 || waitpid(child, &status, 0) != child)
        return -1;
    return status;
}

/* Contends for the mutex until `stop` is set. */
void c_contends(pthread_mutex_t *contended, const volatile int *stop) {
    while (!*stop) {
        pthread_mutex_lock(contended);
        sched_yield();
        pthread_mutex_unlock(contended);
    }
}

/* Memory that two threads share until neither needs it. The last thread to leave it unmaps the
   memory at once. */
struct shared {
    pthread_mutex_t mutex;
    int users;
};

struct shared *c_makes_shared(void) {
    struct shared *shared =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return NULL;
    pthread_mutex_init(&shared->mutex, NULL);
    shared->users = 2;
    return shared;
}

void c_leaves_shared(struct shared *shared, int waits) {
    pthread_mutex_lock(&shared->mutex);
    int is_last = --shared->users == 0;
    for (int turn = 0; turn < waits; turn++)
        sched_yield();
    pthread_mutex_unlock(&shared->mutex);
    if (is_last) {
        pthread_mutex_destroy(&shared->mutex);
        munmap(shared, 4096);
    }
}

/* The locks for random work. */
struct locks {
    pthread_mutex_t mutexes[5];
    pthread_rwlock_t rwlocks[2];
    struct news news;
};

struct locks *c_makes_locks(void) {
    struct locks *locks = calloc(1, sizeof *locks);
    int kinds[] = {0, RECURSIVE, ERRORCHECK, ADAPTIVE, INHERIT};
    for (int each = 0; each < 5; each++)
        c_init(&locks->mutexes[each], kinds[each]);
    for (int each = 0; each < 2; each++)
        pthread_rwlock_init(&locks->rwlocks[each], NULL);
    c_init_news(&locks->news);
    return locks;
}

static unsigned below(unsigned long *random, unsigned limit) {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    return (unsigned)(*random >> 20) % limit;
}

/* Holds a lock for a while, sometimes long enough for other threads to sleep. */
static void hold(unsigned long *random) {
    if (below(random, 4) == 0)
        sched_yield();
    for (unsigned turn = below(random, 2000); turn > 0; turn--)
        __asm__ volatile("pause");
}

__attribute__((noinline)) int c_works_at_random(struct locks *locks, unsigned long seed,
                                                 int turns) {
    unsigned long random = seed;
    int failures = 0;
    struct timespec realtime = after(CLOCK_REALTIME, LONG);
    struct timespec monotonic = after(CLOCK_MONOTONIC, LONG);
    for (int turn = 0; turn < turns; turn++) {
        pthread_mutex_t *mutex = &locks->mutexes[below(&random, 5)];
        pthread_rwlock_t *rwlock = &locks->rwlocks[below(&random, 2)];
        switch (below(&random, 8)) {
        case 0:
        case 1:
            failures += pthread_mutex_lock(mutex) != 0;
            hold(&random);
            if (mutex == &locks->mutexes[1]) {
                failures += pthread_mutex_lock(mutex) != 0;
                hold(&random);
                failures += pthread_mutex_unlock(mutex) != 0;
                hold(&random);
            }
            failures += pthread_mutex_unlock(mutex) != 0;
            break;
        case 2:
            failures += pthread_mutex_timedlock(mutex, &realtime) != 0;
            hold(&random);
            failures += pthread_mutex_unlock(mutex) != 0;
            break;
        case 3:
            failures += pthread_rwlock_wrlock(rwlock) != 0;
            hold(&random);
            failures += pthread_rwlock_unlock(rwlock) != 0;
            break;
        case 4:
            failures += pthread_rwlock_rdlock(rwlock) != 0;
            hold(&random);
            failures += pthread_rwlock_unlock(rwlock) != 0;
            break;
        case 5:
            failures += pthread_rwlock_clockwrlock(rwlock, CLOCK_MONOTONIC, &monotonic) != 0;
            hold(&random);
            failures += pthread_rwlock_unlock(rwlock) != 0;
            break;
        case 6: {
            struct timespec soon;
            clock_gettime(CLOCK_REALTIME, &soon);
            failures += pthread_mutex_lock(&locks->news.mutex) != 0;
            hold(&random);
            int result = pthread_cond_timedwait(&locks->news.condition, &locks->news.mutex, &soon);
            failures += result != 0 && result != ETIMEDOUT;
            failures += pthread_mutex_unlock(&locks->news.mutex) != 0;
            break;
        }
        default:
            failures += pthread_cond_broadcast(&locks->news.condition) != 0;
            hold(&random);
        }
    }
    NOT_THE_LAST;
    return failures;
}
