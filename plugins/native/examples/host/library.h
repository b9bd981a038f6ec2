/* A cartridge library: loaded, its version checked, its sixteen functions bound. */

#ifndef HOST_LIBRARY_H
#define HOST_LIBRARY_H

#include "cartridge_abi.h"

struct library {
    uint32_t (*abi_version)(void);
    const char *(*descriptor_json)(void);
    ctg_status (*preflight)(const char *, ctg_preflight_report *);
    ctg_status (*open)(const char *, const ctg_open_options *, ctg_cartridge **);
    ctg_status (*close)(ctg_cartridge *);
    ctg_status (*session_begin)(ctg_cartridge *, const ctg_session_options *, ctg_session **);
    ctg_status (*session_end)(ctg_session *);
    ctg_status (*infer)(ctg_session *, const ctg_buffer *, ctg_result **);
    ctg_status (*push)(ctg_session *, const ctg_buffer *);
    ctg_status (*pull)(ctg_session *, ctg_result **);
    ctg_status (*flush)(ctg_session *);
    ctg_status (*cancel)(ctg_session *);
    ctg_result_kind (*result_get_kind)(const ctg_result *);
    ctg_status (*result_get_payload)(const ctg_result *, ctg_buffer *);
    void (*result_release)(ctg_result *);
    const char *(*last_error)(const void *);
};

/* Load one; 0 where that fails, once it was said. It stays loaded until the program ends. */
int library_load(struct library *library, const char *path);

/* Say on stderr what failed of what; `text` may be NULL. Gives 0. */
int say_failed(const char *what, ctg_status status, const char *text);

#endif
