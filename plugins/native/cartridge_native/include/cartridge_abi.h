/*
 * Cartridge ABI 0.1: the sixteen functions that a cartridge library exports, in C.
 *
 * A host loads the library, checks ctg_abi_version, compares ctg_descriptor_json with the
 * descriptor.json of the pack, runs ctg_preflight, and only then ctg_open.
 *
 * The upstream text of ABI 0.1 leaves eleven things open. What holds here, by number:
 *
 *  1. Sizes. A struct's `size` is the end of its last field, offsetof(last) + sizeof(last), and not
 *     sizeof, which counts padding: a field that a later minor version puts into the padding would
 *     be taken for present. The sizes of 0.1 are the CTG_SIZE_* constants. A field is present iff
 *     `size` reaches its end. A size below that of 0.1 is CTG_E_ABI_MISMATCH; a larger one is fine.
 *  2. Lifetime of a payload. It is valid until ctg_result_release of its result, whatever is called
 *     on the session in between.
 *  3. Texts without a handle. `detail` of a preflight report and the text of ctg_last_error(NULL)
 *     belong to the calling thread: they are valid until that thread calls the library again.
 *  4. ctg_last_error takes a ctg_cartridge, a ctg_session or NULL. A library must tell the two
 *     apart by itself: the first field of both may be a tag, or of both the same error record.
 *  5. Status and kind cross the border as int32_t, because the size of an enum is the compiler's.
 *  6. Texts are UTF-8 and end with a zero byte. A payload is what the descriptor's io.output says;
 *     that of an ENDPOINT alone is not: it is empty, or the UTF-8 JSON object
 *     {"start_s": 0.5, "end_s": 2.25}, seconds from the session's begin. `start_s` may be missing.
 *     Where it is empty, the host takes the end of what it has pushed.
 *  7. Where a segment ends with both, its ENDPOINT comes before its FINAL.
 *  8. A FINAL commits one segment, not the session: a stream may give many, numbered from 0 in the
 *     order in which they come. The end of the stream is the NULL of ctg_pull after ctg_flush.
 *  9. A cartridge has one input and one output port, those of the descriptor's `io`. What needs two
 *     inputs takes a JSON object.
 * 10. The descriptor of a pack is `descriptor.json` at its root; the library is the one artifact
 *     with `role: runtime`.
 * 11. Single tenancy is said by the descriptor: `attributes.max_concurrent_sessions` (1 where it
 *     is missing), and `attributes.device_key` for a device that several cartridges share.
 *
 * Threads. One session, one thread at a time; only ctg_cancel may come from another. Sessions are
 * independent of each other, and may be driven, begun and ended at the same time, as far as number
 * 11 allows; on one cartridge the host begins one session after the other. ctg_close comes when
 * all its sessions have ended.
 *
 * Failures. Every call that can fail returns a ctg_status, and one that fails gives nothing: what
 * it would have put into `*out` is not looked at, and there is nothing to release. A partial
 * failure is a failure. NULL is CTG_E_INVALID_ARG for every handle and pointer of which nothing
 * else is said. Of a call that breaks two rules either may be told.
 *
 * Ownership. What the host passes in is borrowed for that call. What the library returns is its
 * own; a ctg_result alone is given away, and goes back by ctg_result_release, once.
 */

#ifndef CARTRIDGE_ABI_H
#define CARTRIDGE_ABI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef CTG_API
#if defined(__GNUC__)
#define CTG_API __attribute__((visibility("default")))
#else
#define CTG_API
#endif
#endif

/** How a call ended: 0, or one of the negative numbers below; no other value. */
typedef int32_t ctg_status;

/** The values of a ctg_status. */
enum ctg_status_value {
    CTG_OK = 0,
    CTG_E_INVALID_ARG = -1,  /**< A pointer or the input breaks its rule. */
    CTG_E_UNSUPPORTED = -2,  /**< The other io family, or something that is not offered. */
    CTG_E_PREFLIGHT = -3,    /**< This machine lacks something. */
    CTG_E_LOAD = -4,         /**< The pack or something in it cannot be loaded. */
    CTG_E_BACKEND = -5,      /**< The inference failed. */
    CTG_E_CANCELLED = -6,    /**< ctg_cancel was called. */
    CTG_E_STATE = -7,        /**< The call comes in the wrong order. */
    CTG_E_ABI_MISMATCH = -8, /**< A struct is smaller than that of 0.1. */
    CTG_E_INTERNAL = -99     /**< A bug in the library. */
};

/** What a result means for those before it. */
typedef int32_t ctg_result_kind;

/** The values of a ctg_result_kind. */
enum ctg_result_kind_value {
    CTG_RESULT_PARTIAL = 1, /**< May be superseded; `attributes.partial` says how. */
    CTG_RESULT_FINAL = 2,   /**< Commits the current segment, or is the answer of ctg_infer. */
    CTG_RESULT_ENDPOINT = 3 /**< Speech ended; only with `attributes.endpointing: signal`. */
};

/** Numbers of this version. */
enum ctg_number {
    CTG_ABI_VERSION = 1,               /**< What ctg_abi_version of 0.1 returns: (0 << 16) | 1. */
    CTG_MAX_BUFFER_BYTES = 2147483647  /**< The most that one buffer holds, either way. */
};

/** An open cartridge. */
typedef struct ctg_cartridge ctg_cartridge;

/** One inference or one stream. */
typedef struct ctg_session ctg_session;

/** One result, until it is released. */
typedef struct ctg_result ctg_result;

/** What ctg_preflight found. */
typedef struct ctg_preflight_report {
    size_t size;        /**< Set by the host: CTG_SIZE_PREFLIGHT_REPORT or more. */
    int32_t ok;         /**< 1 where this machine has what the cartridge needs, else 0. */
    const char *detail; /**< What is missing, for a person; NULL where there is nothing to say. */
} ctg_preflight_report;

/** Options of ctg_open. They carry nothing of any one model. */
typedef struct ctg_open_options {
    size_t size;    /**< Set by the host: CTG_SIZE_OPEN_OPTIONS or more. */
    uint32_t flags; /**< 0. */
} ctg_open_options;

/** Options of ctg_session_begin. They carry nothing of any one model. */
typedef struct ctg_session_options {
    size_t size;    /**< Set by the host: CTG_SIZE_SESSION_OPTIONS or more. */
    uint32_t flags; /**< 0. */
} ctg_session_options;

/** Bytes; what they mean is said by the descriptor's io. Arrays are little-endian and in C order. */
typedef struct ctg_buffer {
    size_t size;      /**< Set by the host, also where the library fills in the rest. */
    const void *data; /**< NULL only where `len` is 0. */
    size_t len;       /**< Bytes; at most CTG_MAX_BUFFER_BYTES. */
} ctg_buffer;

/** The sizes of 0.1: the end of each struct's last field. */
enum ctg_struct_size {
    CTG_SIZE_PREFLIGHT_REPORT = offsetof(ctg_preflight_report, detail) + sizeof(const char *),
    CTG_SIZE_OPEN_OPTIONS = offsetof(ctg_open_options, flags) + sizeof(uint32_t),
    CTG_SIZE_SESSION_OPTIONS = offsetof(ctg_session_options, flags) + sizeof(uint32_t),
    CTG_SIZE_BUFFER = offsetof(ctg_buffer, len) + sizeof(size_t)
};

/**
 * Give the version of the ABI: (major << 16) | minor.
 *
 * The host calls it before everything else, and refuses another major. Where it returns 0 the
 * library could not set itself up, and nothing else of it is called.
 */
CTG_API uint32_t ctg_abi_version(void);

/** Give the descriptor, UTF-8 JSON; the library's own, for as long as it is loaded; never NULL. */
CTG_API const char *ctg_descriptor_json(void);

/**
 * Check what only this machine can answer: drivers, accelerators, memory. Loads no model.
 *
 * CTG_OK says that the report is filled in, whatever it says.
 */
CTG_API ctg_status ctg_preflight(const char *pack_dir, ctg_preflight_report *report);

/**
 * Load a cartridge.
 *
 * @param pack_dir The pack's folder, absolute.
 * @param opts NULL for the usual ones.
 * @param out The cartridge; never NULL after CTG_OK.
 */
CTG_API ctg_status ctg_open(const char *pack_dir, const ctg_open_options *opts, ctg_cartridge **out);

/** Unload it. The handle is gone, also where this fails. */
CTG_API ctg_status ctg_close(ctg_cartridge *cartridge);

/**
 * Begin a session; cheap, one for each stream or series of inputs.
 *
 * @param cartridge From ctg_open.
 * @param opts NULL for the usual ones.
 * @param out The session; never NULL after CTG_OK.
 */
CTG_API ctg_status ctg_session_begin(ctg_cartridge *cartridge, const ctg_session_options *opts,
                                     ctg_session **out);

/** End a session, whatever its state. The handle is gone, also where this fails. */
CTG_API ctg_status ctg_session_end(ctg_session *session);

/**
 * Batch: take one whole input, give one FINAL. May be called again for the next input.
 *
 * CTG_E_UNSUPPORTED where io.mode is "streaming".
 */
CTG_API ctg_status ctg_infer(ctg_session *session, const ctg_buffer *input, ctg_result **out);

/**
 * Streaming: take one chunk; the work happens in ctg_pull.
 *
 * CTG_E_STATE after ctg_flush. CTG_E_UNSUPPORTED where io.mode is "batch".
 */
CTG_API ctg_status ctg_push(ctg_session *session, const ctg_buffer *chunk);

/**
 * Streaming: work, and give the next result.
 *
 * CTG_OK and `*out == NULL`: before ctg_flush nothing is due yet, and that is said at once; after
 * it the session is drained, and stays so. CTG_E_UNSUPPORTED where io.mode is "batch".
 */
CTG_API ctg_status ctg_pull(ctg_session *session, ctg_result **out);

/** Streaming: there is no more input. CTG_E_UNSUPPORTED where io.mode is "batch". */
CTG_API ctg_status ctg_flush(ctg_session *session);

/**
 * Stop the work, from any thread, also again.
 *
 * The call that is inside returns CTG_E_CANCELLED as soon as it can. From then on every call on the
 * session but ctg_session_end, ctg_cancel and ctg_last_error does.
 */
CTG_API ctg_status ctg_cancel(ctg_session *session);

/** Give a result's kind. */
CTG_API ctg_result_kind ctg_result_get_kind(const ctg_result *result);

/** Give a view of a result's payload, valid until the result is released. */
CTG_API ctg_status ctg_result_get_payload(const ctg_result *result, ctg_buffer *out);

/** Give a result back; NULL is fine. Also after the session has ended. */
CTG_API void ctg_result_release(ctg_result *result);

/**
 * Say what the last failed call on a handle failed of: for people, never to be parsed.
 *
 * @param cartridge_or_session The handle, or NULL for the calls that have none: ctg_preflight and
 *     ctg_open of the calling thread.
 * @return UTF-8, valid until the next call on that handle (for NULL: of that thread); NULL where
 *     nothing has failed.
 */
CTG_API const char *ctg_last_error(const void *cartridge_or_session);

#ifdef __cplusplus
}
#endif

#endif
