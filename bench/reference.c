/* The reference dispatcher: the minimum work that keeps N slots full.
 *
 *   reference SLOTS FILE
 *
 * Runs every line of FILE with `sh -c LINE`, at most SLOTS at a time, each with its slot number in
 * CUDA_VISIBLE_DEVICES, and blocks in wait() between starts.  It records nothing, so its rate is the
 * limit of the machine; the tables show other tools as a ratio to it.
 */
#define _GNU_SOURCE
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>

extern char **environ;

struct slot {
    pid_t pid; /* 0 while the slot is free */
    char device[64];
    char **env;
};

static void die(const char *what) {
    perror(what);
    exit(2);
}

/* Build environments once, so that a start costs only the spawn. */
static char **environment_with(char *device) {
    size_t count = 0;
    while (environ[count])
        count++;
    char **env = calloc(count + 2, sizeof *env);
    if (!env)
        die("calloc");
    size_t used = 0;
    env[used++] = device;
    for (size_t i = 0; i < count; i++)
        if (strncmp(environ[i], "CUDA_VISIBLE_DEVICES=", 21) != 0)
            env[used++] = environ[i];
    return env;
}

static void start(struct slot *slot, char *line) {
    char *argv[] = {"sh", "-c", line, NULL};
    int error = posix_spawn(&slot->pid, "/bin/sh", NULL, NULL, argv, slot->env);
    if (error) {
        fprintf(stderr, "posix_spawn: %s\n", strerror(error));
        exit(2);
    }
}

static struct slot *wait_for_one(struct slot *slots, int count) {
    pid_t pid = wait(NULL);
    if (pid < 0)
        die("wait");
    for (int i = 0; i < count; i++)
        if (slots[i].pid == pid) {
            slots[i].pid = 0;
            return &slots[i];
        }
    fprintf(stderr, "unknown child %d\n", (int)pid);
    exit(2);
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: reference SLOTS FILE\n");
        return 2;
    }
    int count = atoi(argv[1]);
    FILE *lines = fopen(argv[2], "r");
    if (!lines)
        die(argv[2]);
    struct slot *slots = calloc(count, sizeof *slots);
    if (count < 1 || !slots)
        die("slots");
    for (int i = 0; i < count; i++) {
        snprintf(slots[i].device, sizeof slots[i].device, "CUDA_VISIBLE_DEVICES=%d", i);
        slots[i].env = environment_with(slots[i].device);
    }

    char *line = NULL;
    size_t room = 0;
    int running = 0;
    while (getline(&line, &room, lines) > 0) {
        line[strcspn(line, "\n")] = '\0';
        struct slot *free_slot;
        if (running < count)
            free_slot = &slots[running++]; /* the first round fills the slots in order */
        else
            free_slot = wait_for_one(slots, count);
        start(free_slot, line);
    }
    while (running-- > 0)
        wait_for_one(slots, count);
    return 0;
}
