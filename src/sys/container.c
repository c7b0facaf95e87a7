/* See container.h. */
#include "sys/container.h"

#include <linux/capability.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sys/proc.h"

#define FIRST_PID_NS 0xeffffffcu /* linux/proc_ns.h, PROC_PID_INIT_INO */

/* Marks of docker, podman and Kubernetes; and a root that may not trace is not a machine's. */
static bool is_container(void)
{
	return access("/.dockerenv", F_OK) == 0 || access("/run/.containerenv", F_OK) == 0 ||
	       getenv("KUBERNETES_SERVICE_HOST") ||
	       (geteuid() == 0 && !scry_proc_can(CAP_SYS_PTRACE));
}

const char *scry_container_fix(enum scry_container_need need)
{
	static const char *const fixes[] = {
		[SCRY_CONTAINER_PTRACE] =
			"; in a container: docker run --cap-add SYS_PTRACE, in Kubernetes "
			"securityContext.capabilities.add: [SYS_PTRACE]",
		[SCRY_CONTAINER_BPF] =
			"; in a container: docker run --cap-add BPF --cap-add PERFMON, in "
			"Kubernetes securityContext.capabilities.add: [BPF, PERFMON]",
		[SCRY_CONTAINER_PROCESSES] =
			"; a container sees its own processes: docker run --pid=container:ID (or "
			"--pid=host), in Kubernetes shareProcessNamespace: true (or hostPID: true)",
		[SCRY_CONTAINER_CALLS] =
			"; in a container: docker run --security-opt seccomp=unconfined, in "
			"Kubernetes securityContext.seccompProfile.type: Unconfined",
		[SCRY_CONTAINER_FILES] =
			"; in a container: docker run --tmpfs /tmp (or -v DIR:DIR), in Kubernetes "
			"an emptyDir volume, and -o there",
	};

	return is_container() ? fixes[need] : "";
}

uint32_t scry_container_pid_ns(void)
{
	struct stat st;

	if (stat("/proc/self/ns/pid", &st) < 0 || st.st_ino == FIRST_PID_NS)
		return 0;
	return (uint32_t)st.st_ino;
}
