/* The job: records when it ran.
 *
 *   stamp LOG ID [SLEEP_MS]
 *
 * Appends "id start_ns end_ns pid slot" (CLOCK_MONOTONIC) to LOG.  The line has a fixed length and
 * is one O_APPEND write, so jobs that end together cannot mix their lines, and the number of ended
 * jobs is the size of the file divided by that length (see STAMP_WIDTH in workload.py).  The slot is
 * CUDA_VISIBLE_DEVICES, or -1 if the tool does not set it.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static long long now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static int slot_number(void) {
    const char *text = getenv("CUDA_VISIBLE_DEVICES");
    char *end;
    if (!text || !*text)
        return -1;
    long slot = strtol(text, &end, 10);
    return *end || slot < 0 || slot > 999 ? -1 : (int)slot;
}

int main(int argc, char **argv) {
    long long start = now_ns();
    if (argc < 3) {
        fprintf(stderr, "usage: stamp LOG ID [SLEEP_MS]\n");
        return 2;
    }
    if (argc > 3) {
        long ms = atol(argv[3]);
        struct timespec pause = {ms / 1000, (ms % 1000) * 1000000L};
        nanosleep(&pause, NULL);
    }
    int log = open(argv[1], O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (log < 0) {
        perror(argv[1]);
        return 2;
    }
    char line[96];
    int length = snprintf(line, sizeof line, "%10ld %20lld %20lld %10ld %4d\n", atol(argv[2]),
                          start, now_ns(), (long)getpid(), slot_number());
    return write(log, line, length) == length ? 0 : 2;
}
