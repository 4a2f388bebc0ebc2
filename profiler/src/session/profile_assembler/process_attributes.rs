//! The attributes that say to which service, program and container a process belongs.

use std::borrow::Cow;

use profiler_processes::Identity;

/// The program of kernel threads, spelled as the module of kernel code.
const KERNEL: &str = "[kernel]";

/// The known attributes of a process with the name of its service. `systemd.unit` is no name of OpenTelemetry's conventions, which have none for it.
pub(super) fn of<'a>(
    identity: &'a Identity,
    service_name: Option<&'a str>,
) -> impl Iterator<Item = (&'static str, Cow<'a, str>)> {
    let names = identity.kubernetes.as_deref();
    let program = if identity.status.kernel_thread {
        Some(KERNEL.into())
    } else {
        identity.program.as_deref().map(Cow::Borrowed)
    };
    let attributes = [
        ("service.name", service_name.map(Cow::Borrowed)),
        ("systemd.unit", identity.unit.as_deref().map(Cow::Borrowed)),
        ("process.executable.name", program),
        ("k8s.pod.uid", names.map(|names| names.pod_uid.as_str().into())),
        ("container.image.name", names.and_then(|names| names.image.as_deref()).map(Cow::Borrowed)),
    ];
    let is_known = |value: &Cow<'_, str>| !value.is_empty();
    attributes.into_iter().filter_map(move |(name, value)| Some((name, value.filter(is_known)?)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use profiler_processes::{Status, kubernetes::ContainerNames};

    use super::*;

    fn identity(status: Status, program: Option<&str>) -> Identity {
        Identity {
            status,
            start_ticks: 0,
            started_unix_ns: 0,
            executable: None,
            program: program.map(Into::into),
            environment: Vec::new(),
            service_name: None,
            unit: None,
            container: None,
            kubernetes: None,
            root: None,
        }
    }

    #[test]
    fn what_is_unknown_is_left_out() {
        let names = ContainerNames {
            namespace: "shop".to_owned(),
            pod: "web-0".to_owned(),
            pod_uid: String::new(),
            container: None,
            image: Some("app:1".to_owned()),
        };
        let identity = Identity { kubernetes: Some(Arc::new(names)), ..identity(Status::default(), None) };
        let attributes: Vec<_> = of(&identity, Some("web")).collect();
        assert_eq!(attributes, [("service.name", "web".into()), ("container.image.name", "app:1".into())]);
    }

    #[test]
    fn a_program_has_its_name_and_that_of_the_kernel_one_of_its_own() {
        let program = |status, name| -> Vec<String> {
            of(&identity(status, name), None).map(|(name, value)| format!("{name}={value}")).collect()
        };
        let user = Status::default();
        let expected = ["process.executable.name=app"];
        assert_eq!(program(user.clone(), Some("app")), expected);
        assert_eq!(program(user, None), [""; 0]);
        let kernel = Status { kernel_thread: true, ..Status::default() };
        assert_eq!(program(kernel, None), ["process.executable.name=[kernel]"]);
    }
}
