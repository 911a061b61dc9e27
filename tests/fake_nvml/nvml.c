/* A libnvidia-ml.so.1 for tests: every call reads the state of the driver from a text file.

   FAKE_NVML_STATE  the text file, written by tests/fake_nvml/__init__.py, one entry per line:

     init CODE                          nvmlInit fails (0: it works)
     fail FUNCTION|* CODE [UUID]        calls fail, of all devices or of one
     hang FUNCTION|*                    calls do not return until the file says otherwise
     gpu UUID key=value... model=...    pci minor total reserved used util power
                                        power_limit temp energy ecc mig lost; `none` is a value that the GPU does not report;
                                        numa=NODE cpus=0-3,8 links=MINOR,MINOR (by NVLink)
     slice UUID of=UUID key=value...    a MIG slice: instance total reserved used
     process WHERE PID BYTES|hidden compute|graphics|both while_alive|sticky
     xid SERIAL UUID CODE [INSTANCE]    delivered once, to the processes that registered before

   FAKE_NVML_PROCS  a folder in which a process writes its own claims, as a CUDA program would by
                    allocating: a file named after its PID with lines `WHERE BYTES|hidden [SM]`
                    (SM: its utilization in percent; without any, none is reported)
   FAKE_NVML_CALLS  a file to which the name of every called function is added (optional)

   WHERE is a UUID, or the index of a GPU in PCI order. */

#define _GNU_SOURCE
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7, TIMEOUT = 10, GPU_IS_LOST = 15
};
enum { NAME = 96, MAX_UNITS = 128, MAX_PROCESSES = 4096, MAX_RULES = 64, MAX_XIDS = 256 };

#define HIDDEN (~0ULL) /* NVML_VALUE_NOT_AVAILABLE */
#define NOT_KNOWN (-1)
#define XID_EVENT 8ULL

typedef unsigned long long u64;

/* A GPU, or a slice if `parent` is not empty. */
struct unit {
    char uuid[NAME], model[NAME], pci[32], parent[NAME], cpus[NAME], links[NAME];
    long long minor, total, reserved, used, util, power, power_limit, temp, energy, ecc, mig, lost;
    long long instance, numa;
};
struct process { char where[NAME]; int pid; u64 bytes; int compute, graphics, sticky, sm; };
struct rule { char function[NAME], uuid[NAME]; int code; };
struct xid { int serial, code; long long instance; char uuid[NAME]; };

static struct {
    int init, units, processes, failures, hangs, xids;
    struct unit unit[MAX_UNITS];
    struct process process[MAX_PROCESSES];
    struct rule failure[MAX_RULES], hang[MAX_RULES];
    struct xid xid[MAX_XIDS];
} state;

/* Handles stay valid while the state changes. */
struct device { char uuid[NAME]; int lost; };
static struct device devices[MAX_UNITS * 2];
static int initialised, registered, delivered;

/* -- the state ------------------------------------------------------------------------------- */

static void copy(char *to, const char *from) { snprintf(to, NAME, "%s", from); }

static long long number(const char *text) {
    return strcmp(text, "none") ? strtoll(text, NULL, 10) : NOT_KNOWN;
}

static u64 bytes_of(const char *text) {
    return strcmp(text, "hidden") ? strtoull(text, NULL, 10) : HIDDEN;
}

static void read_unit(char *rest) {
    struct unit *unit = &state.unit[state.units];
    char *model = strstr(rest, " model="), *word, *value;
    if (state.units == MAX_UNITS) return;
    memset(unit, 0, sizeof *unit);
    unit->numa = NOT_KNOWN;
    if (model) {
        copy(unit->model, model + 7);
        *model = 0;
    }
    copy(unit->uuid, strsep(&rest, " "));
    while ((word = strsep(&rest, " "))) {
        if (!(value = strchr(word, '='))) continue;
        *value++ = 0;
        if (!strcmp(word, "pci")) snprintf(unit->pci, sizeof unit->pci, "%s", value);
        else if (!strcmp(word, "of")) copy(unit->parent, value);
        else if (!strcmp(word, "cpus")) copy(unit->cpus, value);
        else if (!strcmp(word, "links")) copy(unit->links, value);
        else if (!strcmp(word, "numa")) unit->numa = number(value);
        else if (!strcmp(word, "minor")) unit->minor = number(value);
        else if (!strcmp(word, "total")) unit->total = number(value);
        else if (!strcmp(word, "reserved")) unit->reserved = number(value);
        else if (!strcmp(word, "used")) unit->used = number(value);
        else if (!strcmp(word, "util")) unit->util = number(value);
        else if (!strcmp(word, "power")) unit->power = number(value);
        else if (!strcmp(word, "power_limit")) unit->power_limit = number(value);
        else if (!strcmp(word, "temp")) unit->temp = number(value);
        else if (!strcmp(word, "energy")) unit->energy = number(value);
        else if (!strcmp(word, "ecc")) unit->ecc = number(value);
        else if (!strcmp(word, "mig")) unit->mig = number(value);
        else if (!strcmp(word, "lost")) unit->lost = number(value);
        else if (!strcmp(word, "instance")) unit->instance = number(value);
    }
    state.units++;
}

static void read_line(char *line) {
    char *rest = line, *kind = strsep(&rest, " ");
    char first[NAME] = "", second[NAME] = "", third[NAME] = "", kinds[NAME] = "", life[NAME] = "";
    if (!rest) return;
    if (!strcmp(kind, "gpu") || !strcmp(kind, "slice")) {
        read_unit(rest);
        return;
    }
    sscanf(rest, "%95s %95s %95s %95s %95s", first, second, third, kinds, life);
    if (!strcmp(kind, "init")) {
        state.init = atoi(first);
    } else if (!strcmp(kind, "fail") && state.failures < MAX_RULES) {
        struct rule *rule = &state.failure[state.failures++];
        copy(rule->function, first);
        copy(rule->uuid, third);
        rule->code = atoi(second);
    } else if (!strcmp(kind, "hang") && state.hangs < MAX_RULES) {
        copy(state.hang[state.hangs++].function, first);
    } else if (!strcmp(kind, "process") && state.processes < MAX_PROCESSES) {
        struct process *process = &state.process[state.processes++];
        copy(process->where, first);
        process->pid = atoi(second);
        process->bytes = bytes_of(third);
        process->compute = strcmp(kinds, "graphics") != 0;
        process->graphics = strcmp(kinds, "compute") != 0;
        process->sticky = !strcmp(life, "sticky");
        process->sm = NOT_KNOWN;
    } else if (!strcmp(kind, "xid") && state.xids < MAX_XIDS) {
        struct xid *xid = &state.xid[state.xids++];
        xid->serial = atoi(first);
        copy(xid->uuid, second);
        xid->code = atoi(third);
        xid->instance = *kinds ? atoll(kinds) : 0xFFFFFFFFLL;
    }
}

static char *contents(const char *path) {
    static char text[1 << 20];
    ssize_t got = 0, more;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return NULL;
    while ((more = read(file, text + got, sizeof text - 1 - got)) > 0) got += more;
    close(file);
    text[got] = 0;
    return text;
}

static void read_state(void) {
    const char *path = getenv("FAKE_NVML_STATE");
    char *rest = path ? contents(path) : NULL, *line;
    state.init = state.units = state.processes = state.failures = state.hangs = state.xids = 0;
    while (rest && (line = strsep(&rest, "\n"))) read_line(line);
}

static int is_of(struct unit *unit, const char *uuid) {
    return !strcmp(unit->uuid, uuid) || (*unit->parent && !strcmp(unit->parent, uuid));
}

static struct unit *unit_of(const char *uuid) {
    for (int i = 0; i < state.units; i++)
        if (!strcmp(state.unit[i].uuid, uuid)) return &state.unit[i];
    return NULL;
}

static struct unit *unit_at(const char *where) {
    if (!isdigit((unsigned char)*where)) return unit_of(where);
    for (int i = 0; i < state.units; i++) {
        int rank = 0;
        if (*state.unit[i].parent) continue;
        for (int j = 0; j < state.units; j++)
            rank += !*state.unit[j].parent && strcmp(state.unit[j].pci, state.unit[i].pci) < 0;
        if (rank == atoi(where)) return &state.unit[i];
    }
    return NULL;
}

/* -- processes ------------------------------------------------------------------------------- */

/* A zombie has released its memory, although kill() still finds it. */
static int is_alive(int pid) {
    char path[64], text[512], *name_end;
    ssize_t got;
    int file;
    if (kill(pid, 0) && errno != EPERM) return 0;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    if ((file = open(path, O_RDONLY | O_CLOEXEC)) < 0) return 0;
    got = read(file, text, sizeof text - 1);
    close(file);
    if (got <= 0) return 0;
    text[got] = 0;
    name_end = strrchr(text, ')');
    return name_end && name_end[1] && !strchr("ZX", name_end[2]);
}

static void read_claims(void) {
    const char *folder = getenv("FAKE_NVML_PROCS");
    DIR *entries = folder ? opendir(folder) : NULL;
    struct dirent *entry;
    while (entries && (entry = readdir(entries))) {
        char path[4096], *rest, *line;
        if (strspn(entry->d_name, "0123456789") != strlen(entry->d_name)) continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        rest = contents(path);
        while (rest && (line = strsep(&rest, "\n"))) {
            struct process *process = &state.process[state.processes];
            char bytes[NAME];
            if (state.processes == MAX_PROCESSES) break;
            process->sm = NOT_KNOWN;
            if (sscanf(line, "%95s %95s %d", process->where, bytes, &process->sm) < 2) continue;
            process->pid = atoi(entry->d_name);
            process->bytes = bytes_of(bytes);
            process->compute = 1;
            process->graphics = process->sticky = 0;
            state.processes++;
        }
    }
    if (entries) closedir(entries);
}

/* Processes on a GPU or slice, moved to the front of the table; the next call reads it again. */
static int listed(struct unit *unit) {
    int count = 0;
    read_claims();
    for (int i = 0; i < state.processes; i++) {
        struct process *process = &state.process[i];
        struct unit *at = unit_at(process->where);
        if (at && is_of(at, unit->uuid) && (process->sticky || is_alive(process->pid)))
            state.process[count++] = *process;
    }
    return count;
}

static u64 used_by(struct unit *unit) {
    u64 used = (u64)unit->used;
    int count = listed(unit);
    for (int i = 0; i < count; i++)
        if (state.process[i].bytes != HIDDEN) used += state.process[i].bytes;
    return used;
}

/* -- start of every call --------------------------------------------------------------------- */

static void count_call(const char *function) {
    const char *path = getenv("FAKE_NVML_CALLS");
    char line[NAME];
    int file, length;
    if (!path || (file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600)) < 0) return;
    length = snprintf(line, sizeof line, "%s\n", function);
    if (write(file, line, (size_t)length) != length) abort();
    close(file);
}

static int applies(struct rule *rule, const char *function, const char *uuid) {
    return (!strcmp(rule->function, "*") || !strcmp(rule->function, function)) &&
           (!*rule->uuid || (uuid && !strcmp(rule->uuid, uuid)));
}

static int enter(const char *function, const char *uuid) {
    const struct timespec moment = {0, 2000000};
    pid_t parent = getppid();
    int hangs = 1;
    count_call(function);
    while (hangs) {
        hangs = 0;
        read_state();
        for (int i = 0; i < state.hangs; i++) hangs |= applies(&state.hang[i], function, uuid);
        if (!hangs) break;
        if (getppid() != parent) _exit(1); /* a real driver would keep it; a test must not */
        nanosleep(&moment, NULL);
    }
    for (int i = 0; i < state.failures; i++)
        if (applies(&state.failure[i], function, uuid)) return state.failure[i].code;
    return SUCCESS;
}

static int enter_started(const char *function) {
    int code = enter(function, NULL);
    return code ? code : initialised ? SUCCESS : UNINITIALIZED;
}

static struct device *handle_of(const char *uuid) {
    struct device *device = devices;
    while (*device->uuid && strcmp(device->uuid, uuid)) device++;
    copy(device->uuid, uuid);
    return device;
}

/* A lost GPU stays lost for this process until it initializes the library again. */
static int is_lost(struct unit *unit) {
    struct device *gpu = handle_of(*unit->parent ? unit->parent : unit->uuid);
    struct unit *state_of_gpu = unit_of(gpu->uuid);
    gpu->lost |= state_of_gpu && state_of_gpu->lost;
    return gpu->lost;
}

static int enter_device(const char *function, struct device *device, struct unit **unit) {
    int code = enter(function, device ? device->uuid : NULL);
    if (code) return code;
    if (!initialised) return UNINITIALIZED;
    if (!device || !(*unit = unit_of(device->uuid))) return INVALID_ARGUMENT;
    return is_lost(*unit) ? GPU_IS_LOST : SUCCESS;
}

static int put_text(const char *text, char *to, unsigned room) {
    if (strlen(text) >= room) return INSUFFICIENT_SIZE;
    strcpy(to, text);
    return SUCCESS;
}

/* -- the library ----------------------------------------------------------------------------- */

__attribute__((constructor)) static void loaded(void) { count_call("load"); }

int nvmlInitWithFlags(unsigned flags) {
    int code = enter(__func__, NULL);
    (void)flags;
    if (code || state.init) return code ? code : state.init;
    if (!initialised++)
        for (struct device *device = devices; *device->uuid; device++) device->lost = 0;
    return SUCCESS;
}

int nvmlShutdown(void) {
    int code = enter_started(__func__);
    if (!code) initialised--;
    return code;
}

const char *nvmlErrorString(int code) {
    switch (code) {
        case SUCCESS: return "Success";
        case UNINITIALIZED: return "Uninitialized";
        case INVALID_ARGUMENT: return "Invalid Argument";
        case NOT_SUPPORTED: return "Not Supported";
        case NOT_FOUND: return "Not Found";
        case TIMEOUT: return "Timeout";
        case GPU_IS_LOST: return "GPU is lost";
        default: return "Unknown Error";
    }
}

int nvmlDeviceGetCount_v2(unsigned *count) {
    int code = enter_started(__func__);
    if (code) return code;
    *count = 0;
    for (int i = 0; i < state.units; i++) *count += !*state.unit[i].parent;
    return SUCCESS;
}

/* In the order of the file, which may differ from that of the bus. */
int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct device **device) {
    int code = enter_started(__func__);
    if (code) return code;
    for (int i = 0; i < state.units; i++) {
        if (*state.unit[i].parent || index--) continue;
        if (is_lost(&state.unit[i])) return GPU_IS_LOST;
        *device = handle_of(state.unit[i].uuid);
        return SUCCESS;
    }
    return INVALID_ARGUMENT;
}

int nvmlDeviceGetUUID(struct device *device, char *uuid, unsigned room) {
    struct unit *unit;
    int code = enter_device(__func__, device, &unit);
    return code ? code : put_text(unit->uuid, uuid, room);
}

int nvmlDeviceGetName(struct device *device, char *name, unsigned room) {
    struct unit *unit;
    int code = enter_device(__func__, device, &unit);
    return code ? code : put_text(unit->model, name, room);
}

int nvmlDeviceGetMinorNumber(struct device *device, unsigned *minor) {
    struct unit *unit;
    int code = enter_device(__func__, device, &unit);
    if (code) return code;
    if (*unit->parent) return NOT_SUPPORTED;
    *minor = (unsigned)unit->minor;
    return SUCCESS;
}

struct pci_info {
    char legacy[16];
    unsigned domain, bus, device, id, subsystem;
    char text[32];
};

int nvmlDeviceGetPciInfo_v3(struct device *device, struct pci_info *pci) {
    struct unit *unit;
    unsigned function = 0;
    int code = enter_device(__func__, device, &unit);
    if (code) return code;
    if (*unit->parent) return NOT_SUPPORTED;
    memset(pci, 0, sizeof *pci);
    sscanf(unit->pci, "%x:%x:%x.%x", &pci->domain, &pci->bus, &pci->device, &function);
    snprintf(pci->text, sizeof pci->text, "%08X:%02X:%02X.%X", pci->domain, pci->bus & 0xFF,
             pci->device & 0xFF, function & 0xF);
    return SUCCESS;
}

struct memory { u64 total, free, used; };
struct memory_v2 { unsigned version; u64 total, reserved, free, used; };

int nvmlDeviceGetMemoryInfo(struct device *device, struct memory *memory) {
    struct unit *unit;
    int code = enter_device(__func__, device, &unit);
    if (code) return code;
    memory->total = (u64)unit->total;
    memory->used = (u64)unit->reserved + used_by(unit); /* version 1 counts both as used */
    memory->free = memory->total - memory->used;
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo_v2(struct device *device, struct memory_v2 *memory) {
    struct unit *unit;
    int code = enter_device(__func__, device, &unit);
    if (code) return code;
    memory->total = (u64)unit->total;
    memory->reserved = (u64)unit->reserved;
    memory->used = used_by(unit);
    memory->free = memory->total - memory->reserved - memory->used;
    return SUCCESS;
}

struct process_info { unsigned pid; u64 bytes; unsigned gpu_instance, compute_instance; };

static int processes(struct unit *unit, int compute, unsigned *room, struct process_info *infos) {
    unsigned found = 0, count = (unsigned)listed(unit);
    for (unsigned i = 0; i < count; i++) {
        struct process *process = &state.process[i];
        if (!(compute ? process->compute : process->graphics)) continue;
        if (found < *room)
            infos[found] = (struct process_info){(unsigned)process->pid, process->bytes,
                                                 0xFFFFFFFF, 0xFFFFFFFF};
        found++;
    }
    count = *room;
    *room = found;
    return found > count ? INSUFFICIENT_SIZE : SUCCESS;
}

#define PROCESSES(function, compute)                                                           \
    int function(struct device *device, unsigned *room, struct process_info *infos) {          \
        struct unit *unit;                                                                     \
        int code = enter_device(__func__, device, &unit);                                      \
        return code ? code : processes(unit, compute, room, infos);                            \
    }
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v3, 1)
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v2, 1)
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3, 0)
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2, 0)

struct process_utilization { unsigned pid; u64 at; unsigned sm, memory, encoder, decoder; };

int nvmlDeviceGetProcessUtilization(struct device *device, struct process_utilization *samples,
                                    unsigned *room, u64 since) {
    struct unit *unit;
    int code = enter_device(__func__, device, &unit);
    unsigned found = 0, count = code ? 0 : (unsigned)listed(unit);
    (void)since;
    for (unsigned i = 0; i < count; i++) {
        struct process *process = &state.process[i];
        if (process->sm == NOT_KNOWN) continue;
        if (found < *room)
            samples[found] = (struct process_utilization){(unsigned)process->pid, 1,
                                                          (unsigned)process->sm, 0, 0, 0};
        found++;
    }
    count = *room;
    *room = found;
    if (code || !found) return code ? code : NOT_SUPPORTED;
    return found > count ? INSUFFICIENT_SIZE : SUCCESS;
}

/* A reading of a GPU; slices have none. */
static int value(const char *function, struct device *device, long long (*of)(struct unit *),
                 long long *result) {
    struct unit *unit;
    int code = enter_device(function, device, &unit);
    if (code) return code;
    *result = *unit->parent ? NOT_KNOWN : of(unit);
    return *result == NOT_KNOWN ? NOT_SUPPORTED : SUCCESS;
}

static long long util_of(struct unit *unit) { return unit->util; }
static long long power_of(struct unit *unit) { return unit->power; }
static long long power_limit_of(struct unit *unit) { return unit->power_limit; }
static long long temp_of(struct unit *unit) { return unit->temp; }
static long long energy_of(struct unit *unit) { return unit->energy; }
static long long ecc_of(struct unit *unit) { return unit->ecc; }

struct utilization { unsigned gpu, memory; };

int nvmlDeviceGetUtilizationRates(struct device *device, struct utilization *utilization) {
    long long result = 0;
    int code = value(__func__, device, util_of, &result);
    utilization->gpu = (unsigned)result;
    utilization->memory = 0;
    return code;
}

int nvmlDeviceGetPowerUsage(struct device *device, unsigned *milliwatts) {
    long long result = 0;
    int code = value(__func__, device, power_of, &result);
    *milliwatts = (unsigned)result;
    return code;
}

int nvmlDeviceGetEnforcedPowerLimit(struct device *device, unsigned *milliwatts) {
    long long result = 0;
    int code = value(__func__, device, power_limit_of, &result);
    *milliwatts = (unsigned)result;
    return code;
}

int nvmlDeviceGetTemperature(struct device *device, int sensor, unsigned *degrees) {
    long long result = 0;
    int code = value(__func__, device, temp_of, &result);
    (void)sensor;
    *degrees = (unsigned)result;
    return code;
}

int nvmlDeviceGetTotalEnergyConsumption(struct device *device, u64 *millijoules) {
    long long result = 0;
    int code = value(__func__, device, energy_of, &result);
    *millijoules = (u64)result;
    return code;
}

int nvmlDeviceGetTotalEccErrors(struct device *device, int kind, int counter, u64 *errors) {
    long long result = 0;
    int code = value(__func__, device, ecc_of, &result);
    (void)kind, (void)counter;
    *errors = (u64)result;
    return code;
}

/* -- topology -------------------------------------------------------------------------------- */

enum { P2P_NVLINK = 2, P2P_OK = 0, P2P_NOT_SUPPORTED = 5, WORD_BITS = 8 * sizeof(unsigned long) };

int nvmlDeviceGetP2PStatus(struct device *first, struct device *second, int index, int *status) {
    struct unit *unit, *other;
    char links[NAME], *rest = links, *word;
    int code = enter_device(__func__, first, &unit);
    if (code) return code;
    if (!second || !(other = unit_of(second->uuid))) return INVALID_ARGUMENT;
    copy(links, unit->links);
    *status = P2P_NOT_SUPPORTED;
    while (index == P2P_NVLINK && *links && (word = strsep(&rest, ",")))
        if (atoll(word) == other->minor) *status = P2P_OK;
    return SUCCESS;
}

int nvmlDeviceGetCpuAffinity(struct device *device, unsigned words, unsigned long *set) {
    struct unit *unit;
    char cpus[NAME], *rest = cpus, *word, *dash;
    int code = enter_device(__func__, device, &unit);
    if (code) return code;
    if (!*unit->cpus) return NOT_SUPPORTED;
    copy(cpus, unit->cpus);
    memset(set, 0, words * sizeof *set);
    while ((word = strsep(&rest, ","))) {
        int first = atoi(word), last = (dash = strchr(word, '-')) ? atoi(dash + 1) : first;
        for (; first <= last && first / WORD_BITS < (int)words; first++)
            set[first / WORD_BITS] |= 1UL << first % WORD_BITS;
    }
    return SUCCESS;
}

int nvmlDeviceGetMemoryAffinity(struct device *device, unsigned words, unsigned long *set,
                                int scope) {
    struct unit *unit;
    int code = enter_device(__func__, device, &unit);
    (void)scope;
    if (code) return code;
    if (unit->numa == NOT_KNOWN || unit->numa / WORD_BITS >= (long long)words)
        return NOT_SUPPORTED;
    memset(set, 0, words * sizeof *set);
    set[unit->numa / WORD_BITS] |= 1UL << unit->numa % WORD_BITS;
    return SUCCESS;
}

/* -- MIG ------------------------------------------------------------------------------------- */

int nvmlDeviceGetMigMode(struct device *device, unsigned *current, unsigned *pending) {
    struct unit *unit;
    int code = enter_device(__func__, device, &unit);
    if (code) return code;
    if (*unit->parent || unit->mig == NOT_KNOWN) return NOT_SUPPORTED;
    *current = *pending = (unsigned)unit->mig;
    return SUCCESS;
}

int nvmlDeviceGetMaxMigDeviceCount(struct device *device, unsigned *count) {
    struct unit *unit;
    int code = enter_device(__func__, device, &unit);
    *count = 7;
    return code;
}

int nvmlDeviceGetMigDeviceHandleByIndex(struct device *gpu, unsigned index,
                                        struct device **slice) {
    struct unit *unit;
    int code = enter_device(__func__, gpu, &unit);
    if (code) return code;
    for (int i = 0; i < state.units; i++) {
        if (strcmp(state.unit[i].parent, unit->uuid) || index--) continue;
        *slice = handle_of(state.unit[i].uuid);
        return SUCCESS;
    }
    return NOT_FOUND;
}

int nvmlDeviceGetGpuInstanceId(struct device *device, unsigned *id) {
    struct unit *unit;
    int code = enter_device(__func__, device, &unit);
    if (code) return code;
    if (!*unit->parent) return NOT_SUPPORTED;
    *id = (unsigned)unit->instance;
    return SUCCESS;
}

/* -- events ---------------------------------------------------------------------------------- */

struct event { struct device *device; u64 type, data; unsigned gpu_instance, compute_instance; };

int nvmlEventSetCreate(void **set) {
    *set = &registered;
    return enter_started(__func__);
}

int nvmlEventSetFree(void *set) {
    (void)set;
    return enter_started(__func__);
}

int nvmlDeviceRegisterEvents(struct device *device, u64 types, void *set) {
    struct unit *unit;
    int code = enter_device(__func__, device, &unit);
    (void)types, (void)set;
    if (code) return code;
    if (!registered) /* earlier events are not reported */
        for (int i = 0; i < state.xids; i++)
            if (state.xid[i].serial > delivered) delivered = state.xid[i].serial;
    registered = 1;
    return SUCCESS;
}

int nvmlEventSetWait_v2(void *set, struct event *event, unsigned milliseconds) {
    const struct timespec moment = {0, 1000000};
    (void)set;
    for (;; milliseconds--) {
        int code = enter_started(__func__);
        if (code) return code;
        for (int i = 0; registered && i < state.xids; i++) {
            struct xid *xid = &state.xid[i];
            if (xid->serial <= delivered) continue;
            delivered = xid->serial;
            *event = (struct event){handle_of(xid->uuid), XID_EVENT, (u64)xid->code,
                                    (unsigned)xid->instance, 0xFFFFFFFF};
            return SUCCESS;
        }
        if (!milliseconds) return TIMEOUT;
        nanosleep(&moment, NULL);
    }
}
