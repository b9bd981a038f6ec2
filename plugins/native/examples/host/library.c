#define _XOPEN_SOURCE 700

#include "library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* All but ctg_abi_version, which comes first, and where they are kept. */
static const struct {
    const char *name;
    size_t place;
} FUNCTIONS[] = {
    {"ctg_descriptor_json", offsetof(struct library, descriptor_json)},
    {"ctg_preflight", offsetof(struct library, preflight)},
    {"ctg_open", offsetof(struct library, open)},
    {"ctg_close", offsetof(struct library, close)},
    {"ctg_session_begin", offsetof(struct library, session_begin)},
    {"ctg_session_end", offsetof(struct library, session_end)},
    {"ctg_infer", offsetof(struct library, infer)},
    {"ctg_push", offsetof(struct library, push)},
    {"ctg_pull", offsetof(struct library, pull)},
    {"ctg_flush", offsetof(struct library, flush)},
    {"ctg_cancel", offsetof(struct library, cancel)},
    {"ctg_result_get_kind", offsetof(struct library, result_get_kind)},
    {"ctg_result_get_payload", offsetof(struct library, result_get_payload)},
    {"ctg_result_release", offsetof(struct library, result_release)},
    {"ctg_last_error", offsetof(struct library, last_error)},
};

static const char *status_name(ctg_status status)
{
    switch (status) {
    case CTG_E_INVALID_ARG:
        return "CTG_E_INVALID_ARG";
    case CTG_E_UNSUPPORTED:
        return "CTG_E_UNSUPPORTED";
    case CTG_E_PREFLIGHT:
        return "CTG_E_PREFLIGHT";
    case CTG_E_LOAD:
        return "CTG_E_LOAD";
    case CTG_E_BACKEND:
        return "CTG_E_BACKEND";
    case CTG_E_CANCELLED:
        return "CTG_E_CANCELLED";
    case CTG_E_STATE:
        return "CTG_E_STATE";
    case CTG_E_ABI_MISMATCH:
        return "CTG_E_ABI_MISMATCH";
    case CTG_E_INTERNAL:
        return "CTG_E_INTERNAL";
    default:
        return "no status of the ABI";
    }
}

int say_failed(const char *what, ctg_status status, const char *text)
{
    if (text == NULL || *text == '\0')
        text = "it does not say why";
    fprintf(stderr, "ctg_host: %s: %s (%d): %s\n", what, status_name(status), (int)status, text);
    return 0;
}

/* Find a function and keep it; ISO C has no cast from an object's address to a function's. */
static int bind(void *loaded, const char *name, void *place)
{
    void *symbol = dlsym(loaded, name);

    memcpy(place, &symbol, sizeof symbol);
    return symbol != NULL || say_failed(name, CTG_E_ABI_MISMATCH, "the library does not export it");
}

static int check_version(uint32_t version)
{
    char text[80];

    if (version == 0)
        return say_failed("ctg_abi_version", CTG_E_ABI_MISMATCH,
                          "0: the library could not set itself up");
    if (version >> 16 == CTG_ABI_VERSION >> 16)
        return 1;
    snprintf(text, sizeof text, "it speaks ABI %u.%u, and 0.x is spoken here",
             (unsigned)(version >> 16), (unsigned)(version & 0xFFFF));
    return say_failed("ctg_abi_version", CTG_E_ABI_MISMATCH, text);
}

int library_load(struct library *library, const char *path)
{
    /*
     * Global, because what a library that holds an interpreter loads later finds its symbols there.
     * It is never closed: such a library leaves behind what would not survive that.
     */
    void *loaded = dlopen(path, RTLD_NOW | RTLD_GLOBAL);

    if (loaded == NULL)
        return say_failed("dlopen", CTG_E_LOAD, dlerror());
    if (!bind(loaded, "ctg_abi_version", &library->abi_version) ||
        !check_version(library->abi_version()))
        return 0;
    for (size_t i = 0; i < sizeof FUNCTIONS / sizeof *FUNCTIONS; i++)
        if (!bind(loaded, FUNCTIONS[i].name, (char *)library + FUNCTIONS[i].place))
            return 0;
    return 1;
}
