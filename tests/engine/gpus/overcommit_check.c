/* A job that checks whether its GPUs are overcommitted.
 *
 *   overcommit_check USAGE_FILE GPU_MB MICROSECONDS
 *
 * USAGE_FILE is a file of 64-bit words that all jobs of a test share: for each GPU how many MB are in
 * use, then violations, then starts. The GPUs come from CUDA_VISIBLE_DEVICES, the amount from
 * STOKER_GPU_MEM_MIB; without it the job has the whole GPU.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define GPUS 16

int main(int argc, char **argv) {
    if (argc != 4)
        return 2;
    int file = open(argv[1], O_RDWR);
    if (file < 0)
        return 3;
    _Atomic int64_t *words = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (words == MAP_FAILED)
        return 4;
    int64_t total = atoll(argv[2]);
    const char *requested = getenv("STOKER_GPU_MEM_MIB");
    int64_t amount = requested ? atoll(requested) : total;
    int gpus[GPUS], count = 0;
    char *visible = strdup(getenv("CUDA_VISIBLE_DEVICES"));
    for (char *word = strtok(visible, ","); word && count < GPUS; word = strtok(NULL, ","))
        gpus[count++] = atoi(word);
    for (int i = 0; i < count; i++)
        if (atomic_fetch_add(&words[gpus[i]], amount) + amount > total)
            atomic_fetch_add(&words[GPUS], 1);
    atomic_fetch_add(&words[GPUS + 1], 1);
    usleep(atoi(argv[3]));
    for (int i = 0; i < count; i++)
        atomic_fetch_sub(&words[gpus[i]], amount);
    return 0;
}
